package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.Limits;
import io.sluicegate.testing.Records;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class LimitTest {
    private static final Duration SECOND = Duration.ofSeconds(1);

    @Test
    void limits_are_the_rules_that_servers_make_of_documents() {
        for (int place = 0; place < Limits.ALL.size(); place++) {
            String name = "all-" + place;
            RuleSet compiled = RecordReader.read(name, Records.of(name).getBytes(StandardCharsets.UTF_8)).rules();
            same(name, compiled, Limits.ALL.get(place).policy("p").rules());
        }
        assertEquals(Carry.PROPORTIONAL, Limit.slidingLog(1, SECOND).carry(Carry.PROPORTIONAL).policy("p").rules().carry());
    }

    static void same(String name, RuleSet servers, RuleSet own) {
        assertEquals(servers, own, name);
        for (int place = 0; place < own.rules().size(); place++) {
            Rule wanted = servers.rules().get(place);
            Rule rule = own.rules().get(place);
            assertEquals(wanted.name(), rule.name(), name);
            assertEquals(wanted.limit(), rule.limit(), name + " limit");
            assertEquals(wanted.windowUs(), rule.windowUs(), name + " window_us");
            assertEquals(wanted.calendar(), rule.calendar(), name + " calendar");
        }
    }

    @Test
    void limits_have_the_blobs_and_heads_of_the_vectors() {
        List<?> entries = (List<?>) ((Map<?, ?>) Json.read(Checkout.bytes("spec/wire/limits.json"))).get("entries");
        for (Object entry : entries) {
            Map<?, ?> each = (Map<?, ?>) entry;
            RuleSet rules = DocumentRules.limit((Map<?, ?>) each.get("document")).policy("p").rules();
            Head head = Head.broughtAlong(rules);
            assertEquals(each.get("head_hex"), HexFormat.of().formatHex(head.bytes()));
            assertEquals(each.get("blob_hex"), HexFormat.of().formatHex(head.blob(rules)));
            byte[] state = Arrays.copyOf(head.bytes(), head.bytes().length + 9);
            assertEquals(rules, Head.rulesOfState(state), each.get("head_hex").toString());
            for (int length = 0; length < head.bytes().length; length++) {
                assertNull(Head.rulesOfState(Arrays.copyOf(state, length)));
            }
        }
    }

    private static void refused(String message, Limit limit) {
        SluicegateException e = assertThrows(SluicegateException.class, () -> limit.policy("p"));
        assertEquals(ErrorCode.RULES, e.code());
        assertEquals("rules: p: " + message, e.getMessage());
    }

    @Test
    void a_sliding_window_of_the_most_buckets_does_not_take_redis_too_long() {
        try (InMemoryGate gate = Sluicegate.inMemory(Clock.systemUTC())) {
            assertTrue(gate.limit("fine", Limit.slidingWindow(100, SECOND).buckets(1_000)).check("k").allowed());
        }
    }

    @Test
    void what_is_not_valid_is_refused_with_its_path() {
        refused("rules[0].fixed_window.limit: `0` is outside 1..=4294967296", Limit.fixedWindow(0, SECOND));
        refused("rules[0].fixed_window.window: `PT0S` is outside 1us..=366d", Limit.fixedWindow(1, Duration.ZERO));
        refused("rules[0].leaky_bucket.permits: `4294967297` is outside 1..=4294967296", Limit.leakyBucket((1L << 32) + 1, SECOND));
        refused("rules[0].token_bucket.period: `PT-1S` is outside 1us..=366d", Limit.tokenBucket(1, SECOND.negated()));
        refused("rules[0].token_bucket.burst: `0` is outside 1..=4294967296", Limit.tokenBucket(1, SECOND).burst(0));
        refused("rules[0].leaky_bucket.delay: `3` is outside 0..=2", Limit.leakyBucket(1, SECOND).burst(2).delay(3));
        refused("rules[0].smooth_bursty.max_burst: `PT8784H0.001S` is outside 1us..=366d",
            Limit.smoothBursty(1, SECOND).maxBurst(Duration.ofDays(366).plusMillis(1)));
        refused("rules[0].smooth_warmup.cold_factor: `1.0` is not above 1 and at most 1000", Limit.smoothWarmup(1, SECOND, SECOND).coldFactor(1));
        refused("rules[0].fixed_window.time_zone: unknown time zone `+02:00`", Limit.calendarWindow(1, Limit.Every.DAY, ZoneId.of("+02:00")));
        refused("rules[0].sliding_window.window: `9us` is shorter than a µs for each of 10 buckets", Limit.slidingWindow(1, Duration.ofNanos(9_999)));
        refused("rules[0].sliding_window.buckets: `1001` is outside 1..=1000", Limit.slidingWindow(1, SECOND).buckets(1001));
        refused("rules[0].sliding_counter.limit: `4294967296` is outside 1..=4294967295", Limit.slidingCounter(1L << 32, SECOND));
        refused("rules[0].concurrency.ttl: `PT0.000000999S` is outside 1us..=366d", Limit.concurrency(1, Duration.ofNanos(999)));
        refused("rules[0].name: `A` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`", Limit.slidingLog(1, SECOND).named("A"));
        refused("rules[1].name: two rules are named `a`", Limit.slidingLog(1, SECOND).named("a").and(Limit.slidingLog(1, SECOND).named("a")));
        refused("rules[0].sliding_log.limit: `0` is outside 1..=10000", Limit.slidingLog(0, SECOND));
        refused("rules[0].concurrency.limit: `-1` is outside 1..=10000", Limit.concurrency(-1, SECOND));
        refused("rules[0].token_bucket.initial: `6` is outside 0..=5", Limit.tokenBucket(1, SECOND).burst(5).initial(6));
        refused("rules[0].sliding_log.burst: unknown field", Limit.slidingLog(1, SECOND).burst(1));
        refused("rules[0].name: is missing: with several rules, each needs a name",
            Limit.slidingLog(1, SECOND).and(Limit.slidingLog(2, SECOND)));
        refused("rules: one decision could take Redis too long", Limit.slidingLog(9_000, SECOND));
        Limit nine = Limit.slidingLog(1, SECOND).named("r0");
        for (int place = 1; place < 9; place++) {
            nine = nine.and(Limit.slidingLog(1, SECOND).named("r" + place));
        }
        refused("rules: `9` are outside 1..=8", nine);
        for (Limit limit : new Limit[] {Limit.fixedWindow(1, Duration.ofSeconds(Long.MAX_VALUE)),
            Limit.smoothWarmup(1, SECOND, SECOND).coldFactor(Double.NaN)}) {
            assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> limit.policy("p")).code());
        }
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> Limit.slidingLog(1, SECOND).policy("A")).code());
        assertThrows(NullPointerException.class, () -> Limit.slidingLog(1, null));
        Limit alone = Limit.slidingLog(1, SECOND).named("a");
        assertEquals("rules: carry: belongs to all rules, and must be set after `and`",
            assertThrows(SluicegateException.class, () -> alone.and(alone.carry(Carry.RESET))).getMessage());
        assertEquals("rules: on_store_failure: belongs to all rules, and must be set after `and`",
            assertThrows(SluicegateException.class, () -> alone.and(alone.onStoreFailure(OnStoreFailure.DENY))).getMessage());
        assertEquals(Carry.RESET, alone.carry(Carry.RESET).and(Limit.slidingLog(1, SECOND).named("b")).policy("p").rules().carry());
        Limit two = Limit.slidingLog(1, SECOND).named("a").and(Limit.fixedWindow(2, SECOND).named("b"));
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> two.buckets(1)).code());
    }
}
