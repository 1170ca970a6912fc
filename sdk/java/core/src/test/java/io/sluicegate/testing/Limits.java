package io.sluicegate.testing;

import io.sluicegate.Limit;
import java.time.Duration;
import java.time.ZoneId;
import java.util.List;

/** Limits in code, of every algorithm and parameter. */
public final class Limits {
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final Duration HOUR = Duration.ofHours(1);
    private static final Limit HELD = Limit.concurrency(5, Duration.ofSeconds(30));

    /** All of them, in the order of the policies `all-0` and so on of policies.yaml. */
    public static final List<Limit> ALL = List.of(
        Limit.tokenBucket(10, HOUR).burst(20).initial(2),
        Limit.tokenBucket(100, HOUR).refillByInterval(),
        Limit.leakyBucket(10, HOUR).delay(5).burst(20),
        Limit.leakyBucket(10, HOUR).burst(20).noDelay(),
        Limit.leakyBucket(10, SECOND),
        Limit.smoothBursty(7, HOUR).maxBurst(HOUR.multipliedBy(2)),
        Limit.smoothWarmup(7, HOUR, HOUR.multipliedBy(3)).coldFactor(2.5),
        Limit.fixedWindow(10, HOUR.multipliedBy(8000)),
        Limit.fixedWindow(10, HOUR).fromFirst(),
        Limit.calendarWindow(5000, Limit.Every.YEAR, ZoneId.of("Europe/Berlin")),
        Limit.slidingWindow(100, HOUR).buckets(7),
        Limit.slidingCounter(100, HOUR.multipliedBy(8000)),
        Limit.slidingLog(20, HOUR),
        HELD,
        Limit.tokenBucket(10, HOUR).named("burst").and(Limit.slidingLog(20, HOUR).named("log")));

    private Limits() {}

    static boolean holdsPermits(Limit limit) {
        return limit == HELD;
    }
}
