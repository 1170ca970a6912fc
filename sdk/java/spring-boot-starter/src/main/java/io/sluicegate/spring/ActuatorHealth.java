package io.sluicegate.spring;

import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;

/** What the health of the application says of its gate, in Spring Boot 3.5. */
final class ActuatorHealth implements HealthIndicator {
    private final Gate gate;
    private final String degradedStatus;

    ActuatorHealth(Gate gate, String degradedStatus) {
        this.gate = gate;
        this.degradedStatus = degradedStatus;
    }

    @Override
    public Health health() {
        if (!(gate instanceof DirectGate direct)) {
            return Health.up().build();
        }
        return direct.isDegraded()
            ? Health.status(degradedStatus).withDetail("redis", "does not answer").withDetail("decisions", "by on_store_failure").build()
            : Health.up().withDetail("redis", "answers").build();
    }
}
