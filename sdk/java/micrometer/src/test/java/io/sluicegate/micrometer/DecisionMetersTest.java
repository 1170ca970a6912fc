package io.sluicegate.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.sluicegate.Gate;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import java.time.Clock;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class DecisionMetersTest {
    private final SimpleMeterRegistry registry = new SimpleMeterRegistry();

    private long count(String policy, String verb, String result, String mode) {
        Timer timer = registry.find(DecisionMeters.NAME).tags("policy", policy, "verb", verb, "result", result, "mode", mode).timer();
        return timer == null ? 0 : timer.count();
    }

    @Test
    void decisions_are_timed() throws Exception {
        InMemoryGate memory = Sluicegate.inMemory(Clock.systemUTC());
        memory.policy("orders", Limit.fixedWindow(2, Duration.ofDays(366)));
        try (Gate gate = DecisionMeters.observe(memory, registry)) {
            Limiter orders = gate.policy("orders");
            orders.check("k");
            orders.checkAsync("k").get(5, TimeUnit.SECONDS);
            orders.check("k");
            orders.atMost("k", 3);
            assertThrows(SluicegateException.class, () -> orders.acquire("k"));
            assertEquals(2, count("orders", "check", "allowed", "store"));
            assertEquals(1, count("orders", "check", "refused", "store"));
            assertEquals(1, count("orders", "at_most", "refused", "store"));
            assertEquals(1, count("orders", "acquire", "error", "none"));
            assertEquals(1, registry.find(DecisionMeters.NAME).tags("error", "unsupported_verb").timer().count());
            assertEquals(4, registry.find(DecisionMeters.NAME).tags("error", "none").timers().stream().mapToLong(Timer::count).sum());
            assertThrows(SluicegateException.class, () -> orders.check(""));
            orders.checkAsync("").handle((decision, problem) -> problem).get(5, TimeUnit.SECONDS);
            assertEquals(2, count("orders", "check", "error", "none"));
            assertEquals(2, registry.find(DecisionMeters.NAME).tags("error", "key_empty").timer().count());
            assertTrue(registry.find(DecisionMeters.NAME).timer().totalTime(TimeUnit.NANOSECONDS) > 0);
            memory.limit("mail", Limit.slidingLog(1, Duration.ofDays(1))).observedBy(new DecisionMeters(registry)).check("k");
            assertEquals(1, count("mail", "check", "allowed", "store"));
        }
    }
}
