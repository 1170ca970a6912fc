package io.sluicegate;

import static io.sluicegate.LimitParameters.PERMITS_MAX;

import io.sluicegate.internal.Checks;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.kernel.Rules.Rate;
import io.sluicegate.internal.policy.OverflowAction;
import io.sluicegate.internal.policy.Policy;
import java.time.Duration;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * A limit that a program makes itself, of one rule or, by {@link #and}, of several. It is never changed, and so safe for all threads:
 * each method gives another limit. Permits are 1 to 2^32 and times 1 µs to 366 days, unless a method states otherwise. Whether all of it is valid
 * is found out where a gate takes it, with a {@link SluicegateException} of the code {@link ErrorCode#RULES}.
 */
public final class Limit {
    /** The length of a window of the calendar. */
    public enum Every {
        /** From midnight to midnight. */
        DAY,
        /** From Monday to Monday. */
        WEEK,
        /** From the first of a month on. */
        MONTH,
        /** From the first of January on. */
        YEAR
    }

    /** The name of a rule that is alone. */
    private static final String ALONE = "limit";
    /** The entries of a log, or permits that are held; fewer are too many for Redis. */
    private static final long ENTRIES_MAX = 10_000;

    private final List<One> rules;
    private final Carry carry;
    private final OnStoreFailure onStoreFailure;

    /** One rule: its algorithm, and the parameters that were given; the name may be null. */
    private record One(String name, String algorithm, Map<String, Object> parameters) {
        One with(String parameter, Object value) {
            Map<String, Object> more = new LinkedHashMap<>(parameters);
            more.put(parameter, Objects.requireNonNull(value, parameter));
            return new One(name, algorithm, more);
        }
    }

    private Limit(List<One> rules, Carry carry, OnStoreFailure onStoreFailure) {
        this.rules = List.copyOf(rules);
        this.carry = carry;
        this.onStoreFailure = onStoreFailure;
    }

    private static Limit of(String algorithm, String parameter, Object value) {
        return new Limit(List.of(new One(null, algorithm, Map.of(parameter, value))), Carry.USAGE, OnStoreFailure.LOCAL);
    }

    private Limit with(String parameter, Object value) {
        return onlyRule(parameter, rules.get(0).with(parameter, value));
    }

    private Limit onlyRule(String what, One rule) {
        if (rules.size() > 1) {
            throw LimitParameters.error(what, "belongs to one rule, and must be set before `and`");
        }
        return new Limit(List.of(rule), carry, onStoreFailure);
    }

    /**
     * Permits flow back at a rate, up to a burst.
     *
     * @param permits that flow back; also the {@linkplain #burst burst}, unless you set that
     * @param period in which they do
     * @return the limit
     */
    public static Limit tokenBucket(long permits, Duration period) {
        return of("token_bucket", "permits", permits).with("period", period);
    }

    /**
     * Requests go on one after the other, at a rate: a check is allowed with a wait.
     *
     * @param permits that go on
     * @param period in which they do
     * @return the limit, in which none wait unless you set a {@linkplain #burst burst}
     */
    public static Limit leakyBucket(long permits, Duration period) {
        return of("leaky_bucket", "permits", permits).with("period", period);
    }

    /**
     * Guava's SmoothBursty: any cost passes, and the next request pays for it.
     *
     * @param permits of the rate
     * @param period of the rate
     * @return the limit, which saves permits for a second unless you set {@link #maxBurst}
     */
    public static Limit smoothBursty(long permits, Duration period) {
        return of("smooth_bursty", "permits", permits).with("period", period);
    }

    /**
     * Guava's SmoothWarmingUp: any cost passes, the next request pays for it, and after idle times permits come slower.
     *
     * @param permits of the rate
     * @param period of the rate
     * @param warmup how long it takes to get to the rate
     * @return the limit, whose factor is 3 unless you set {@link #coldFactor}
     */
    public static Limit smoothWarmup(long permits, Duration period, Duration warmup) {
        return of("smooth_warmup", "permits", permits).with("period", period).with("warmup", warmup);
    }

    /**
     * So many permits in each window; windows begin at multiples of their length.
     *
     * @param limit how many
     * @param window how long
     * @return the limit
     */
    public static Limit fixedWindow(long limit, Duration window) {
        return of("fixed_window", "limit", limit).with("window", window);
    }

    /**
     * So many permits in each day, week, month or year of a time zone.
     *
     * @param limit how many
     * @param every what has so many
     * @param zone whose midnight it is, by a name of the IANA database such as {@code Europe/Berlin}
     * @return the limit
     */
    public static Limit calendarWindow(long limit, Every every, ZoneId zone) {
        return of("fixed_window", "limit", limit).with("calendar", every).with("time_zone", zone);
    }

    /**
     * So many permits in every window, by counters.
     *
     * @param limit how many
     * @param window how long
     * @return the limit, of 10 counters unless you set {@link #buckets}
     */
    public static Limit slidingWindow(long limit, Duration window) {
        return of("sliding_window", "limit", limit).with("window", window);
    }

    /**
     * So many permits in about every window, at the cost of two counters.
     *
     * @param limit how many, at most 2^32 - 1
     * @param window how long
     * @return the limit
     */
    public static Limit slidingCounter(long limit, Duration window) {
        return of("sliding_counter", "limit", limit).with("window", window);
    }

    /**
     * So many permits in every window, exactly.
     *
     * @param limit how many, at most some 2,500: a decision must not take Redis too long
     * @param window how long
     * @return the limit
     */
    public static Limit slidingLog(long limit, Duration window) {
        return of("sliding_log", "limit", limit).with("window", window);
    }

    /**
     * So many permits that are held at a time.
     *
     * @param limit how many, at most some 1,000: a decision must not take Redis too long
     * @param ttl after which one that is neither released nor renewed comes back
     * @return the limit
     */
    public static Limit concurrency(long limit, Duration ttl) {
        return of("concurrency", "limit", limit).with("ttl", ttl);
    }

    /**
     * Sets the permits that pass at once, of a token bucket, or wait, of a leaky bucket.
     *
     * @param burst permits, of a leaky bucket from 0
     * @return the limit
     */
    public Limit burst(long burst) {
        return with("burst", burst);
    }

    /**
     * Sets the permits that a new key has in a token bucket; its burst by default.
     *
     * @param initial permits, 0 to the burst
     * @return the limit
     */
    public Limit initial(long initial) {
        return with("initial", initial);
    }

    /**
     * The permits of a token bucket come back all at once, at the end of each period.
     *
     * @return the limit
     */
    public Limit refillByInterval() {
        return with("refill", "interval");
    }

    /**
     * Sets the number of requests of a leaky bucket that go on at once before others wait; 0 by default.
     *
     * @param delay permits, 0 to the burst
     * @return the limit
     */
    public Limit delay(long delay) {
        return with("delay", delay);
    }

    /**
     * No request of a leaky bucket waits: what fits goes on at once.
     *
     * @return the limit
     */
    public Limit noDelay() {
        return with("delay", "none");
    }

    /**
     * For how long {@link #smoothBursty} saves permits.
     *
     * @param maxBurst how long
     * @return the limit
     */
    public Limit maxBurst(Duration maxBurst) {
        return with("max_burst", maxBurst);
    }

    /**
     * By how much {@link #smoothWarmup} is slower when it is cold.
     *
     * @param factor above 1, at most 1,000
     * @return the limit
     */
    public Limit coldFactor(double factor) {
        return with("cold_factor", factor);
    }

    /**
     * The window of {@link #fixedWindow} begins with the first request of a key.
     *
     * @return the limit
     */
    public Limit fromFirst() {
        return with("align", "first");
    }

    /**
     * Sets the number of counters of {@link #slidingWindow}.
     *
     * @param buckets 1 to 1,000
     * @return the limit
     */
    public Limit buckets(long buckets) {
        return with("buckets", buckets);
    }

    /**
     * Names the rule, which decisions report. One that is alone is called {@code limit} by default; of several each
     * needs a name.
     *
     * @param name 1 to 128 bytes of {@code [a-z0-9._-]}
     * @return the limit
     */
    public Limit named(String name) {
        One rule = rules.get(0);
        return onlyRule("name", new One(Objects.requireNonNull(name, "name"), rule.algorithm, rule.parameters));
    }

    /**
     * Both limits at once: a request passes if all their rules agree, at most 8.
     *
     * @param other the other limit, without {@link #carry} and {@link #onStoreFailure}: set them of both, after this
     * @return the limit
     * @throws SluicegateException with {@link ErrorCode#RULES} if {@code other} has one of these
     */
    public Limit and(Limit other) {
        if (other.carry != Carry.USAGE || other.onStoreFailure != OnStoreFailure.LOCAL) {
            throw LimitParameters.error(other.carry != Carry.USAGE ? "carry" : "on_store_failure",
                "belongs to all rules, and must be set after `and`");
        }
        List<One> both = new ArrayList<>(rules);
        both.addAll(other.rules);
        return new Limit(both, carry, onStoreFailure);
    }

    /**
     * Sets the fate of usage where this limit meets another of its name; {@link Carry#USAGE} by default.
     *
     * @param carry what becomes of it
     * @return the limit
     */
    public Limit carry(Carry carry) {
        return new Limit(rules, Objects.requireNonNull(carry, "carry"), onStoreFailure);
    }

    /**
     * Sets the decision while Redis does not answer; {@link OnStoreFailure#LOCAL} by default.
     *
     * @param how what holds
     * @return the limit
     */
    public Limit onStoreFailure(OnStoreFailure how) {
        return new Limit(rules, carry, Objects.requireNonNull(how, "how"));
    }

    Policy policy(String name) {
        if (!Checks.isName(name)) {
            throw noName("name", name);
        }
        if (rules.size() > RuleSet.RULES_MAX) {
            throw LimitParameters.error(name + ": rules", "`" + rules.size() + "` are outside 1..=" + RuleSet.RULES_MAX);
        }
        List<Rule> encoded = new ArrayList<>();
        Set<String> names = new HashSet<>();
        for (One one : rules) {
            String path = name + ": rules[" + encoded.size() + "]";
            String called = one.name == null && rules.size() == 1 ? ALONE : one.name;
            if (called == null) {
                throw LimitParameters.error(path + ".name", "is missing: with several rules, each needs a name");
            }
            if (!Checks.isName(called)) {
                throw noName(path + ".name", called);
            }
            if (!names.add(called)) {
                throw LimitParameters.error(path + ".name", "two rules are named `" + called + "`");
            }
            LimitParameters parameters = new LimitParameters(path + "." + one.algorithm, one.parameters);
            encoded.add(encode(called, one.algorithm, parameters));
            parameters.done();
        }
        RuleSet set = new RuleSet(carry, encoded);
        if (set.costsTooMuch()) {
            throw LimitParameters.error(name + ": rules", "one decision could take Redis too long");
        }
        return new Policy(name, 0, Policy.SINCE_UNKNOWN, "", List.of("*"), set, Map.of(), OverflowAction.REJECT, onStoreFailure);
    }

    private static SluicegateException noName(String path, String name) {
        return LimitParameters.error(path, "`" + name + "` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
    }

    private static Rule encode(String name, String algorithm, LimitParameters p) {
        return switch (algorithm) {
            case "token_bucket" -> {
                Rate rate = p.rate();
                long burst = p.whole("burst", 1, PERMITS_MAX, rate.permits());
                yield Rules.tokenBucket(name, rate, burst, p.whole("initial", 0, burst, burst), p.takes("refill", "interval"));
            }
            case "leaky_bucket" -> {
                Rate rate = p.rate();
                long burst = p.whole("burst", 0, PERMITS_MAX, 0);
                yield Rules.leakyBucket(name, rate, burst, p.takes("delay", "none") ? -1 : p.whole("delay", 0, burst, 0));
            }
            case "smooth_bursty" -> Rules.smoothBursty(name, p.rate(), p.span("max_burst", Duration.ofSeconds(1)));
            case "smooth_warmup" -> Rules.smoothWarmup(name, p.rate(), p.span("warmup"), p.factor("cold_factor", 3));
            case "fixed_window" -> {
                long limit = p.whole("limit", 1, PERMITS_MAX);
                yield p.has("calendar") ? Rules.calendarWindow(name, limit, p.calendar())
                    : Rules.fixedWindow(name, limit, p.span("window"), p.takes("align", "first"));
            }
            case "sliding_window" -> {
                long buckets = p.whole("buckets", 1, 1000, 10);
                yield Rules.slidingWindow(name, p.whole("limit", 1, PERMITS_MAX), p.spanOf("window", buckets), buckets);
            }
            case "sliding_counter" -> Rules.slidingCounter(name, p.whole("limit", 1, PERMITS_MAX - 1), p.span("window"));
            case "sliding_log" -> Rules.slidingLog(name, p.whole("limit", 1, ENTRIES_MAX), p.span("window"));
            default -> Rules.concurrency(name, p.whole("limit", 1, ENTRIES_MAX), p.span("ttl"));
        };
    }
}
