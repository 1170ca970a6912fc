package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.Heap;
import io.sluicegate.testing.TestRedis;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import org.junit.jupiter.api.Test;

class InMemoryGateTest {
    private static final class ManualClock extends Clock {
        private Instant now = Instant.parse("2026-03-01T00:00:00Z");

        @Override
        public ZoneId getZone() {
            return ZoneOffset.UTC;
        }

        @Override
        public Clock withZone(ZoneId zone) {
            return this;
        }

        @Override
        public Instant instant() {
            return now;
        }
    }

    private final ManualClock clock = new ManualClock();
    private final InMemoryGate gate = Sluicegate.inMemory(clock);

    @Test
    void it_decides_by_the_clock_of_the_test() {
        Limiter mail = gate.limit("mail", Limit.tokenBucket(1, Duration.ofSeconds(1)));
        assertTrue(mail.check("a").allowed());
        Decision refused = mail.check("a");
        assertEquals(Duration.ofSeconds(1), refused.retryAfter().orElseThrow());
        assertThrows(RateLimitExceededException.class, () -> mail.checkOrThrow("a"));
        clock.now = clock.now.plusSeconds(1);
        assertTrue(mail.check("a").allowed());
        assertTrue(mail.check("b").allowed());
    }

    @Test
    void decisions_leave_nothing_in_memory() {
        Limiter mail = gate.limit("mail", Limit.tokenBucket(10, Duration.ofSeconds(1)).named("bucket")
            .and(Limit.slidingWindow(100, Duration.ofMinutes(1)).named("minute")));
        Heap.assertStays(TestRedis.isLong() ? 1_000_000 : 100_000, call -> {
            clock.now = clock.now.plusMillis(1);
            mail.check("k" + call % 100);
        });
    }

    @Test
    void documents_are_policies() {
        Limiter shadow = gate.document(
            "{\"name\":\"s\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1h\"}}],\"overflow\":\"shadow\"}");
        assertTrue(shadow.check(null).allowed());
        Decision over = shadow.check(null);
        assertTrue(over.allowed());
        assertTrue(over.isOverLimit());
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> gate.document("{}")).code());
        assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, () -> gate.policy("none").check("k")).code());
    }

    @Test
    void several_limits_decide_together() {
        Limiter both = gate.limit("both", Limit.fixedWindow(5, Duration.ofHours(1)).named("hour")
            .and(Limit.concurrency(1, Duration.ofMinutes(1)).named("held")));
        try (Permit permit = both.acquire("k").orElseThrow()) {
            assertTrue(permit.decision().allowed());
            assertFalse(both.acquire("k").decision().allowed());
        }
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class,
            () -> gate.limit("same", Limit.fixedWindow(5, Duration.ofHours(1)).and(Limit.fixedWindow(1, Duration.ofHours(1))))).code());
        assertEquals(ErrorCode.COST_RANGE, assertThrows(SluicegateException.class, () -> both.peek("k", 0)).code());
    }
}
