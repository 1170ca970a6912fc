package io.sluicegate.micrometer;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.GateHealth;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import io.sluicegate.SluicegateException;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * Times decisions by the timer {@code sluicegate.decisions}. Its tags are {@code policy}, {@code verb}, {@code result}
 * ({@code allowed}, {@code refused} or {@code error}), {@code mode} (what decided) and {@code error} (why there is no decision); of the
 * last two one is {@code none}. No tag contains a key.
 */
public final class DecisionMeters implements Observer {
    /** The name of the timer. */
    public static final String NAME = "sluicegate.decisions";
    /** The value of a tag that does not apply, as in the meters of Spring. */
    private static final String NONE = "none";

    private final MeterRegistry registry;

    /**
     * Makes meters.
     *
     * @param registry where they are
     */
    public DecisionMeters(MeterRegistry registry) {
        this.registry = Objects.requireNonNull(registry, "registry");
    }

    /**
     * Returns a gate that times the decisions of another.
     *
     * @param gate the gate, which the new one closes
     * @param registry where the timers are
     * @return the gate
     */
    public static Gate observe(Gate gate, MeterRegistry registry) {
        DecisionMeters meters = new DecisionMeters(registry);
        return new Gate() {
            @Override
            public Limiter policy(String name) {
                return gate.policy(name).observedBy(meters);
            }

            @Override
            public GateHealth health() {
                return gate.health();
            }

            @Override
            public void close() {
                gate.close();
            }
        };
    }

    @Override
    public void decided(String verb, Decision decision, long nanos) {
        timer(decision.policy(), verb, decision.allowed() ? "allowed" : "refused", decision.mode().name(), NONE).record(nanos, TimeUnit.NANOSECONDS);
    }

    @Override
    public void failed(String policy, String verb, SluicegateException failure, long nanos) {
        timer(policy, verb, "error", NONE, failure.code().name()).record(nanos, TimeUnit.NANOSECONDS);
    }

    private Timer timer(String policy, String verb, String result, String mode, String error) {
        return registry.timer(NAME, Tags.of("policy", policy, "verb", verb, "result", result, "mode", mode.toLowerCase(Locale.ROOT),
            "error", error.toLowerCase(Locale.ROOT)));
    }
}
