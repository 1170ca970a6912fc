package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
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
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

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
        Limiter shadow = gate.compiled(Records.file()).policy("shadow").shared();
        assertTrue(shadow.check("").allowed());
        Decision over = shadow.check("");
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
        try (over) {
            assertTrue(over.orElseThrow().renew().allowed());
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
    void a_limiter_is_asked_with_a_key_or_shared() {
        Limiter mail = gate.limit("mail", Limit.fixedWindow(2, Duration.ofHours(1)));
        assertEquals("key: is null; the budget that all share has the key \"\" of `limiter.shared()`",
            assertThrows(NullPointerException.class, () -> mail.check(null)).getMessage());
        assertThrows(NullPointerException.class, () -> mail.checkAsync(null));
        assertThrows(NullPointerException.class, () -> mail.shared().check(null));
        assertEquals(ErrorCode.KEY_EMPTY, assertThrows(SluicegateException.class, () -> mail.check("")).code());
        assertEquals(1, mail.shared().check("").remaining());
        assertEquals(0, mail.shared().check("").remaining());
        assertEquals(1, mail.shared().check("alice").remaining());
        assertEquals(0, mail.check("alice").remaining());
    }

    @Test
    void null_is_refused_before_anything_is_asked() {
        Limiter jobs = gate.limit("jobs", Limit.concurrency(1, Duration.ofMinutes(1)));
        Limit limit = Limit.fixedWindow(1, Duration.ofHours(1));
        Map<String, Executable> calls = Map.ofEntries(
            Map.entry("id", () -> jobs.acquire("k", null, 1)), Map.entry("id ", () -> jobs.release("k", null)),
            Map.entry("id  ", () -> jobs.renewAsync("k", null)), Map.entry("maxWait", () -> jobs.reserve("k", 1, null)),
            Map.entry("carry", () -> limit.carry(null)), Map.entry("how", () -> limit.onStoreFailure(null)),
            Map.entry("name", () -> limit.named(null)), Map.entry("name ", () -> gate.limit(null, limit)),
            Map.entry("policy", () -> gate.policy(null)), Map.entry("port", () -> Sluicegate.direct(null)),
            Map.entry("clock", () -> Sluicegate.inMemory(null)));
        calls.forEach((message, call) -> assertEquals(message.trim(), assertThrows(NullPointerException.class, call, message).getMessage()));
        assertEquals(1, jobs.peek("k", 1).remaining());
    }

    @Test
    void an_attempt_has_one_permit_which_it_gives_back() {
        Limiter jobs = gate.limit("jobs", Limit.concurrency(1, Duration.ofMinutes(1)));
        try (Acquisition held = jobs.acquire("k")) {
            assertSame(held.orElseThrow(), held.orElseThrow());
            try (Acquisition refused = jobs.acquire("k")) {
                assertFalse(refused.decision().allowed());
            }
            assertFalse(jobs.acquire("k").decision().allowed());
        }
        assertTrue(jobs.acquire("k").decision().allowed());
    }

    @Test
    void what_is_allowed_is_waited_for() throws Exception {
        LocalLimits any = gate;
        Limiter slow = any.limit("slow", Limit.leakyBucket(1, Duration.ofMillis(20)).burst(1));
        assertEquals(Duration.ZERO, slow.check("k").waitTime());
        Decision second = slow.check("k");
        assertTrue(second.allowed());
        assertEquals(Duration.ofMillis(20), second.waitTime());
        long began = System.nanoTime();
        assertSame(second, second.sleep());
        assertTrue(System.nanoTime() - began >= 20_000_000);
        Decision refused = slow.check("k");
        assertFalse(refused.sleep().allowed());
        assertTrue(refused.isOverLimit() && !second.isOverLimit());
    }

    @Test
    void an_exception_of_an_observer_keeps_no_decision_from_its_caller() {
        List<String> seen = new ArrayList<>();
        Observer broken = new Observer() {
            @Override
            public void decided(String verb, Decision decision, long nanos) {
                seen.add(verb);
                throw new IllegalStateException("broken");
            }

            @Override
            public void failed(String policy, String verb, SluicegateException failure, long nanos) {
                seen.add(failure.code().name());
                throw new IllegalStateException("broken");
            }
        };
        Limiter mail = gate.limit("mail", Limit.fixedWindow(2, Duration.ofHours(1))).observedBy(broken, broken);
        assertTrue(mail.check("k").allowed());
        assertTrue(mail.checkAsync("k").join().allowed());
        assertEquals(ErrorCode.UNSUPPORTED_VERB, assertThrows(SluicegateException.class, () -> mail.acquire("k")).code());
        TestRedis.await("six calls", () -> seen.size() == 6);
        assertEquals(List.of("check", "check", "check", "check", "UNSUPPORTED_VERB", "UNSUPPORTED_VERB"), seen);
    }

    @Test
    void records_hold_copies() {
        Map<String, String> headers = new HashMap<>(Map.of("a", "b"));
        Overflow.Response response = new Overflow.Response(200, headers, "");
        headers.clear();
        assertEquals(Map.of("a", "b"), response.headers());
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
