package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.Heap;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import java.util.stream.IntStream;
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
    void records_are_policies() {
        Limiter shadow = gate.compiled(Records.file()).policy("shadow");
        assertTrue(shadow.check(null).allowed());
        Decision over = shadow.check(null);
        assertTrue(over.allowed());
        assertTrue(over.isOverLimit());
        assertEquals(1000, gate.policy("whole").peek("203.0.113.7", 1).limit());
        assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, () -> gate.policy("none").check("k")).code());
    }

    private void refused(ErrorCode code, String message, String records) {
        SluicegateException problem = assertThrows(SluicegateException.class, () -> gate.compiled(records));
        assertEquals(code, problem.code());
        assertEquals(message, problem.getMessage());
    }

    @Test
    void a_file_with_a_record_that_is_not_read_is_refused_whole() {
        String good = "{\"#format\":1,\"good\":" + Records.of("fixed-1") + ",\"bad\":";
        refused(ErrorCode.UNREADABLE_POLICY, "policy: `bad` cannot be read: record: `2` is of a later version; this program reads 1",
            good + Records.of("fixed-1", "record", 2L) + "}");
        refused(ErrorCode.UNREADABLE_POLICY, "policy: `bad` cannot be read: overflow.kind: is missing",
            good + Records.of("fixed-1", "overflow", Map.of()) + "}");
        refused(ErrorCode.UNREADABLE_POLICY, "policy: `bad` cannot be read: expected an object", good + "7}");
        refused(ErrorCode.RULES, "rules: #format: `2` is another format; this program reads 1", "{\"#format\":2}");
        refused(ErrorCode.RULES, "rules: #format: is missing", "{}");
        refused(ErrorCode.RULES, "rules: not JSON: expected a value at 0", "policies: []");
        assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, () -> gate.policy("good").check("k")).code());
    }

    @Test
    void a_policy_made_in_code_replaces_the_one_of_its_name() {
        assertEquals(9, gate.policy("mail", Limit.fixedWindow(10, Duration.ofHours(1))).check("k").remaining());
        assertEquals(3, gate.policy("mail", Limit.fixedWindow(5, Duration.ofHours(1))).check("k").remaining());
        assertEquals(2, gate.policy("mail").check("k").remaining());
        // A limit of that name has budgets of its own.
        assertEquals(4, gate.limit("mail", Limit.fixedWindow(5, Duration.ofHours(1))).check("k").remaining());
        SluicegateException problem = assertThrows(SluicegateException.class, () -> gate.policy("mail", Limit.fixedWindow(0, Duration.ofHours(1))));
        assertEquals(ErrorCode.RULES, problem.code());
        assertEquals("rules: mail: rules[0].fixed_window.limit: `0` is outside 1..=4294967296", problem.getMessage());
    }

    @Test
    void overflow_means_for_acquire_what_it_means_for_check() {
        Limiter seen = gate.compiled(Records.file()).policy("jobs-shadow");
        Permit held = seen.acquire("k").orElseThrow();
        Acquisition over = seen.acquire("k");
        assertEquals(new Overflow.Shadow(), over.decision().overflow());
        try (Permit permit = over.orElseThrow()) {
            assertTrue(permit.renew().allowed());
        }
        assertEquals(0, seen.peek("k", 1).remaining());
        assertTrue(seen.acquire("k", "over", 1).allowed());
        assertTrue(seen.renew("k", "over").allowed() && seen.release("k", "over").allowed());
        held.close();
        assertEquals(1, seen.peek("k", 1).remaining());
        Limiter later = gate.policy("jobs-degrade");
        assertTrue(later.acquire("k", "first", 1).allowed());
        Acquisition refused = later.acquire("k");
        assertEquals(new Overflow.Tag("queue"), refused.decision().overflow());
        assertThrows(RateLimitExceededException.class, refused::orElseThrow);
        assertFalse(later.renew("k", "second").allowed());
    }

    /** A sliding counter once cut what it had counted to a lower limit: 100 to 37 and back let 63 more pass each time. */
    @Test
    void a_limit_that_is_lowered_and_raised_again_gives_nothing_back() {
        Duration day = Duration.ofDays(1);
        List<LongFunction<Limit>> algorithms = List.of(
            limit -> Limit.slidingCounter(limit, day),
            limit -> Limit.fixedWindow(limit, day),
            limit -> Limit.slidingWindow(limit, day).buckets(24),
            limit -> Limit.slidingLog(limit, day));
        for (int place = 0; place < algorithms.size(); place++) {
            LongFunction<Limit> made = algorithms.get(place);
            assertEquals(List.of(100L, 0L, 0L, 0L, 0L, 0L, 0L),
                passed("quota" + place, made, 100, 37, 100, 37, 100, 37, 100));
            assertEquals(List.of(10L, 10L, 0L, 0L), passed("boost" + place, made, 10, 20, 10, 20));
        }
    }

    /** Returns the number of 200 checks that pass at each of these limits, one after the other. */
    private List<Long> passed(String name, LongFunction<Limit> made, int... limits) {
        return IntStream.of(limits).mapToObj(limit -> {
            Limiter limiter = gate.limit(name, made.apply(limit));
            return IntStream.range(0, 200).filter(check -> limiter.check("k").allowed()).count();
        }).toList();
    }

    /** Usage above a lower limit is capped at the most that is counted exactly, which is more than the limit. */
    @Test
    void what_was_counted_under_a_much_higher_limit_fills_a_small_one() {
        Duration year = Duration.ofDays(366);
        long most = (1L << 32) - 1;
        long cost = 1L << 31;
        LongFunction<Limiter> counter = limit -> gate.limit("quota", Limit.slidingCounter(limit, year));
        assertTrue(counter.apply(most).check("k", cost).allowed());
        assertFalse(counter.apply(1).check("k").allowed());
        assertEquals(most - cost - 1, counter.apply(most).check("k").remaining(), "it was kept");
        clock.now = clock.now.plus(year);
        assertFalse(counter.apply(1).check("k").allowed());
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
