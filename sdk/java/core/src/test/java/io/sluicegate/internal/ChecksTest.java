package io.sluicegate.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.sluicegate.ErrorCode;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import java.time.Clock;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class ChecksTest {
    private static void refused(String message, Executable call) {
        assertEquals(message, assertThrows(SluicegateException.class, call).getMessage());
    }

    @Test
    void half_of_a_surrogate_pair_is_no_key_and_no_name_of_a_permit() {
        for (String half : List.of("\ud800", "\udfff", "a\ud801", "\ud800\ud800\udc00", "\udc00\ud800")) {
            refused("key: is not UTF-8", () -> Checks.key(half));
            refused("key: is not UTF-8", () -> Checks.id(half));
        }
    }

    @Test
    void keys_are_counted_in_bytes() {
        for (String whole : List.of("a".repeat(1024), "\u00e9".repeat(512), "\u20ac".repeat(341) + "a", "\ud83d\ude00".repeat(256))) {
            assertEquals(whole, Checks.key(whole));
            refused("key: `1025` bytes are outside 1..=1024", () -> Checks.key(whole + "b"));
            refused("id: `1025` bytes are outside 1..=1024", () -> Checks.id(whole + "b"));
        }
    }

    @Test
    void waits_of_any_length_have_an_answer() {
        refused("max_wait: `9223372036854775807000000` is outside 0..=9007199254740991 us", () -> Checks.maxWaitUs(Duration.ofSeconds(Long.MAX_VALUE)));
        refused("max_wait: `-1` is outside 0..=9007199254740991 us", () -> Checks.maxWaitUs(Duration.ofNanos(-1)));
        refused("deadline: `9223372036854775807000` is outside 1..=10000 ms", () -> Checks.deadline(Duration.ofSeconds(Long.MAX_VALUE)));
        refused("deadline: `0` is outside 1..=10000 ms", () -> Checks.deadline(Duration.ZERO));
        Duration forever = Duration.ofSeconds(Long.MAX_VALUE);
        try (InMemoryGate gate = Sluicegate.inMemory(Clock.systemUTC())) {
            Limiter limiter = gate.limit("a", Limit.fixedWindow(1, Duration.ofDays(1)));
            for (Executable call : List.<Executable>of(() -> limiter.reserve("k", 1, forever), () -> limiter.await("k", forever))) {
                assertEquals(ErrorCode.MAX_WAIT_RANGE, assertThrows(SluicegateException.class, call).code());
            }
            for (Limit limit : List.of(Limit.tokenBucket(1, forever), Limit.smoothBursty(1, Duration.ofDays(1)).maxBurst(forever),
                Limit.smoothWarmup(1, forever, forever.negated()), Limit.concurrency(1, forever))) {
                assertEquals(ErrorCode.RULES, assertThrows(SluicegateException.class, () -> gate.limit("b", limit)).code());
            }
        }
    }

    @Test
    void what_comes_from_outside_is_cut_in_errors() {
        String flood = "x".repeat(1023) + "\ud83d\ude00" + "y".repeat(500_000);
        String message = ErrorCode.PERHAPS_CHARGED.with(Map.of("cause", flood)).getMessage();
        assertEquals("store: " + "x".repeat(1023) + "…; perhaps charged, not repeated", message);
        assertEquals("x".repeat(1024), Texts.truncate("x".repeat(1024)));
        assertEquals("x".repeat(1022) + "…", Texts.truncate("x".repeat(1022) + "\ud83d\ude00" + "y"));
    }
}
