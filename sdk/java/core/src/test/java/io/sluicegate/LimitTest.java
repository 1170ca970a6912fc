package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.sluicegate.internal.policy.PolicyReader;
import io.sluicegate.testing.Limits;
import java.time.Duration;
import java.time.ZoneId;
import org.junit.jupiter.api.Test;

class LimitTest {
    private static final Duration SECOND = Duration.ofSeconds(1);

    @Test
    void limits_are_the_rules_of_documents() {
        for (int place = 0; place < Limits.ALL.size(); place++) {
            String document = "{'name':'p','rules':[" + Limits.DOCUMENTS.get(place) + "]}";
            assertEquals(PolicyReader.document(document.replace('\'', '"')).rules(), Limits.ALL.get(place).policy("p").rules(), document);
        }
        assertEquals(Carry.PROPORTIONAL, Limit.slidingLog(1, SECOND).carry(Carry.PROPORTIONAL).policy("p").rules().carry());
    }

    private static void refused(String message, Limit limit) {
        SluicegateException e = assertThrows(SluicegateException.class, () -> limit.policy("p"));
        assertEquals(ErrorCode.RULES, e.code());
        assertEquals("rules: " + message, e.getMessage());
    }

    @Test
    void what_is_not_valid_is_refused_with_its_path() {
        refused("rules[0].fixed_window.limit: `0` is outside 1..=4294967296", Limit.fixedWindow(0, SECOND));
        refused("rules[0].sliding_log.limit: `0` is outside 1..=10000", Limit.slidingLog(0, SECOND));
        refused("rules[0].concurrency.limit: `-1` is outside 1..=10000", Limit.concurrency(-1, SECOND));
        refused("rules[0].token_bucket.initial: `6` is outside 0..=5", Limit.tokenBucket(1, SECOND).burst(5).initial(6));
        refused("rules[0].sliding_log.burst: unknown field", Limit.slidingLog(1, SECOND).burst(1));
        refused("rules[0].name: is missing: with several rules, each needs a name",
            Limit.slidingLog(1, SECOND).and(Limit.slidingLog(2, SECOND)));
        refused("rules: one decision could take Redis too long", Limit.slidingLog(9_000, SECOND));
        for (Limit limit : new Limit[] {Limit.fixedWindow(1, Duration.ZERO), Limit.fixedWindow(1, Duration.ofDays(367)),
            Limit.fixedWindow(1, SECOND.negated()), Limit.fixedWindow(1, Duration.ofSeconds(Long.MAX_VALUE)),
            Limit.calendarWindow(1, Limit.Every.DAY, ZoneId.of("+02:00")), Limit.smoothWarmup(1, SECOND, SECOND).coldFactor(Double.NaN),
            Limit.slidingLog(1, SECOND).named("A")}) {
            assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> limit.policy("p")).code());
        }
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> Limit.slidingLog(1, SECOND).policy("A")).code());
        Limit two = Limit.slidingLog(1, SECOND).named("a").and(Limit.fixedWindow(2, SECOND).named("b"));
        assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> two.buckets(1)).code());
    }
}
