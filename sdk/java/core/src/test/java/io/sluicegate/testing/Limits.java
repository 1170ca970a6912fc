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

    /** All of them; the documents are in the same order. */
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

    /** Their rules as documents have them. */
    public static final List<String> DOCUMENTS = List.of(
        "{'name':'limit','token_bucket':{'rate':'10/h','burst':20,'initial':2}}",
        "{'name':'limit','token_bucket':{'rate':'100/h','refill':'interval'}}",
        "{'name':'limit','leaky_bucket':{'rate':'10/h','burst':20,'delay':5}}",
        "{'name':'limit','leaky_bucket':{'rate':'10/h','burst':20,'delay':'none'}}",
        "{'name':'limit','leaky_bucket':{'rate':'10/s'}}",
        "{'name':'limit','smooth_bursty':{'rate':'7/h','max_burst':'2h'}}",
        "{'name':'limit','smooth_warmup':{'rate':'7/h','warmup':'3h','cold_factor':2.5}}",
        "{'name':'limit','fixed_window':{'limit':10,'window':'8000h'}}",
        "{'name':'limit','fixed_window':{'limit':10,'window':'1h','align':'first'}}",
        "{'name':'limit','fixed_window':{'limit':5000,'calendar':'year','time_zone':'Europe/Berlin'}}",
        "{'name':'limit','sliding_window':{'limit':100,'window':'1h','buckets':7}}",
        "{'name':'limit','sliding_counter':{'limit':100,'window':'8000h'}}",
        "{'name':'limit','sliding_log':{'limit':20,'window':'1h'}}",
        "{'name':'limit','concurrency':{'limit':5,'ttl':'30s'}}",
        "{'name':'burst','token_bucket':{'rate':'10/h'}},{'name':'log','sliding_log':{'limit':20,'window':'1h'}}");

    private Limits() {}

    static boolean holdsPermits(Limit limit) {
        return limit == HELD;
    }
}
