package io.sluicegate;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.PolicyException;
import io.sluicegate.internal.policy.PolicyReader;
import io.sluicegate.internal.policy.Values;
import java.time.Duration;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A limit that a program makes itself, of one rule or, by {@link #and}, of several. It is never changed: each method gives
 * another limit. Permits are 1 to 2^32 and times 1 µs to 366 days, unless a method says otherwise. Whether all of it is valid
 * is found out where a gate takes it, with a {@link SluicegateException} of the code {@link ErrorCode#RULES}.
 */
public final class Limit {
    /** How long a window of the calendar is. */
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

    private final List<One> rules;
    private final Carry carry;
    private final OnStoreFailure onStoreFailure;

    /** One rule as a document has it; the name may be null. */
    private record One(String name, String algorithm, Map<String, Object> parameters) {
        One with(String parameter, Object value) {
            Map<String, Object> more = new LinkedHashMap<>(parameters);
            more.put(parameter, value);
            return new One(name, algorithm, more);
        }

        Map<String, Object> document(String otherwise) {
            Map<String, Object> rule = new LinkedHashMap<>();
            String called = name == null ? otherwise : name;
            if (called != null) {
                rule.put("name", called);
            }
            rule.put(algorithm, parameters);
            return rule;
        }
    }

    private Limit(List<One> rules, Carry carry, OnStoreFailure onStoreFailure) {
        this.rules = List.copyOf(rules);
        this.carry = carry;
        this.onStoreFailure = onStoreFailure;
    }

    private static Limit of(String algorithm, Object... parameters) {
        One one = new One(null, algorithm, Map.of());
        for (int place = 0; place < parameters.length; place += 2) {
            one = one.with((String) parameters[place], parameters[place + 1]);
        }
        return new Limit(List.of(one), Carry.USAGE, OnStoreFailure.LOCAL);
    }

    private Limit with(String parameter, Object value) {
        return onlyRule(parameter, rules.get(0).with(parameter, value));
    }

    private Limit onlyRule(String what, One rule) {
        if (rules.size() > 1) {
            throw ErrorCode.RULES.with(Map.of("cause", what + ": belongs to one rule, and must be said before `and`"));
        }
        return new Limit(List.of(rule), carry, onStoreFailure);
    }

    private static Object number(long value) {
        return new Json.Num(Long.toString(value));
    }

    private static String span(Duration span) {
        boolean countable = !span.isNegative() && span.getSeconds() <= Values.DURATION_MAX_US / 1_000_000;
        return countable ? span.getSeconds() * 1_000_000 + span.getNano() / 1000 + "us" : span.getSeconds() + "s";
    }

    private static String rate(long permits, Duration period) {
        return permits + "/" + span(period);
    }

    /**
     * Permits flow back at a rate, up to a burst.
     *
     * @param permits that flow back; also the {@linkplain #burst burst}, unless you set that
     * @param period in which they do
     * @return the limit
     */
    public static Limit tokenBucket(long permits, Duration period) {
        return of("token_bucket", "rate", rate(permits, period));
    }

    /**
     * Requests go on one after the other, at a rate: a check is allowed with a wait.
     *
     * @param permits that go on
     * @param period in which they do
     * @return the limit, in which none wait unless you set a {@linkplain #burst burst}
     */
    public static Limit leakyBucket(long permits, Duration period) {
        return of("leaky_bucket", "rate", rate(permits, period));
    }

    /**
     * Guava's SmoothBursty: any cost passes, and the next request pays for it.
     *
     * @param permits of the rate
     * @param period of the rate
     * @return the limit, which saves permits for a second unless you set {@link #maxBurst}
     */
    public static Limit smoothBursty(long permits, Duration period) {
        return of("smooth_bursty", "rate", rate(permits, period));
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
        return of("smooth_warmup", "rate", rate(permits, period), "warmup", span(warmup));
    }

    /**
     * So many permits in each window; windows begin at multiples of their length.
     *
     * @param limit how many
     * @param window how long
     * @return the limit
     */
    public static Limit fixedWindow(long limit, Duration window) {
        return of("fixed_window", "limit", number(limit), "window", span(window));
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
        String name = zone.getId().equals("Z") ? "UTC" : zone.getId();
        return of("fixed_window", "limit", number(limit), "calendar", every.name().toLowerCase(Locale.ROOT), "time_zone", name);
    }

    /**
     * So many permits in every window, by counters.
     *
     * @param limit how many
     * @param window how long
     * @return the limit, of 10 counters unless you set {@link #buckets}
     */
    public static Limit slidingWindow(long limit, Duration window) {
        return of("sliding_window", "limit", number(limit), "window", span(window));
    }

    /**
     * So many permits in about every window, at the cost of two counters.
     *
     * @param limit how many, at most 2^32 - 1
     * @param window how long
     * @return the limit
     */
    public static Limit slidingCounter(long limit, Duration window) {
        return of("sliding_counter", "limit", number(limit), "window", span(window));
    }

    /**
     * So many permits in every window, exactly.
     *
     * @param limit how many, at most some 2,500: a decision must not take Redis too long
     * @param window how long
     * @return the limit
     */
    public static Limit slidingLog(long limit, Duration window) {
        return of("sliding_log", "limit", number(limit), "window", span(window));
    }

    /**
     * So many permits that are held at a time.
     *
     * @param limit how many, at most some 1,000: a decision must not take Redis too long
     * @param ttl after which one that is neither released nor renewed comes back
     * @return the limit
     */
    public static Limit concurrency(long limit, Duration ttl) {
        return of("concurrency", "limit", number(limit), "ttl", span(ttl));
    }

    /**
     * How much passes at once, of a token bucket, or waits, of a leaky bucket.
     *
     * @param burst permits, of a leaky bucket from 0
     * @return the limit
     */
    public Limit burst(long burst) {
        return with("burst", number(burst));
    }

    /**
     * What a new key has of a token bucket; its burst by default.
     *
     * @param initial permits, 0 to the burst
     * @return the limit
     */
    public Limit initial(long initial) {
        return with("initial", number(initial));
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
     * How many requests of a leaky bucket go on at once before others wait; 0 by default.
     *
     * @param delay permits, 0 to the burst
     * @return the limit
     */
    public Limit delay(long delay) {
        return with("delay", number(delay));
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
        return with("max_burst", span(maxBurst));
    }

    /**
     * By how much {@link #smoothWarmup} is slower when it is cold.
     *
     * @param factor above 1, at most 1,000
     * @return the limit
     */
    public Limit coldFactor(double factor) {
        return with("cold_factor", new Json.Num(Double.toString(factor)));
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
     * Of how many counters {@link #slidingWindow} is made.
     *
     * @param buckets 1 to 1,000
     * @return the limit
     */
    public Limit buckets(long buckets) {
        return with("buckets", number(buckets));
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
        return onlyRule("name", new One(name, rule.algorithm, rule.parameters));
    }

    /**
     * Both limits at once: a request passes if all their rules agree, at most 8.
     *
     * @param other the other limit
     * @return the limit
     */
    public Limit and(Limit other) {
        List<One> both = new ArrayList<>(rules);
        both.addAll(other.rules);
        return new Limit(both, carry, onStoreFailure);
    }

    /**
     * What becomes of usage where this limit meets another of its name; {@link Carry#USAGE} by default.
     *
     * @param carry what becomes of it
     * @return the limit
     */
    public Limit carry(Carry carry) {
        return new Limit(rules, carry, onStoreFailure);
    }

    /**
     * What holds while Redis does not answer; {@link OnStoreFailure#LOCAL} by default.
     *
     * @param how what holds
     * @return the limit
     */
    public Limit onStoreFailure(OnStoreFailure how) {
        return new Limit(rules, carry, how);
    }

    Policy policy(String name) {
        String otherwise = rules.size() == 1 ? ALONE : null;
        Map<String, Object> document = Map.of("name", name, "carry", carry.name().toLowerCase(Locale.ROOT),
            "rules", rules.stream().map(rule -> rule.document(otherwise)).toList());
        try {
            return PolicyReader.limit(document, onStoreFailure);
        } catch (PolicyException e) {
            throw ErrorCode.RULES.with(Map.of("cause", e.getMessage()));
        }
    }
}
