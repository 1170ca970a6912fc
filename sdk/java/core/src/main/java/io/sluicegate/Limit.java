package io.sluicegate;

import io.sluicegate.internal.Checks;
import io.sluicegate.internal.kernel.Carry;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.kernel.Rules.Rate;
import io.sluicegate.internal.policy.Over;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.Values;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * A limit that a program makes itself. It is never changed: each method gives another limit. Permits are 1 to 2^32, times
 * 1 µs to 366 days; what is outside is a {@link SluicegateException} with the code {@link ErrorCode#RULES}.
 */
public final class Limit {
    private final List<Rule> rules;
    private final Function<Long, Rule> withBurst;
    private final OnStoreFailure onStoreFailure;

    private Limit(List<Rule> rules, Function<Long, Rule> withBurst, OnStoreFailure onStoreFailure) {
        this.rules = List.copyOf(rules);
        this.withBurst = withBurst;
        this.onStoreFailure = onStoreFailure;
    }

    private static Limit of(Rule rule) {
        return new Limit(List.of(rule), null, OnStoreFailure.LOCAL);
    }

    private static SluicegateException wrong(String cause) {
        return ErrorCode.RULES.with(Map.of("cause", cause));
    }

    private static long permits(String what, long value, long most) {
        if (value < 1 || value > most) {
            throw wrong(what + ": `" + value + "` is outside 1..=" + most);
        }
        return value;
    }

    private static long span(String what, Duration span) {
        long us = Checks.maxWaitUs(span);
        if (us < 1 || us > Values.DURATION_MAX_US) {
            throw wrong(what + ": `" + span + "` is outside 1us..=366d");
        }
        return us;
    }

    /**
     * Permits flow back at a rate, up to as many as the rate has.
     *
     * @param permits that flow back
     * @param period in which they do
     * @return the limit, whose burst can be {@linkplain #burst set}
     */
    public static Limit tokenBucket(long permits, Duration period) {
        Rate rate = new Rate(permits("rate", permits, Values.PERMITS_MAX), span("rate", period));
        Function<Long, Rule> withBurst = burst -> Rules.tokenBucket("token_bucket", rate, burst, burst, false);
        return new Limit(List.of(withBurst.apply(permits)), withBurst, OnStoreFailure.LOCAL);
    }

    /**
     * The same token bucket with another depth.
     *
     * @param burst the permits that are there at most
     * @return the limit
     */
    public Limit burst(long burst) {
        if (withBurst == null) {
            throw wrong("burst: is for a token bucket");
        }
        return new Limit(List.of(withBurst.apply(permits("burst", burst, Values.PERMITS_MAX))), withBurst, onStoreFailure);
    }

    /**
     * So many permits in each window; windows begin at multiples of their length.
     *
     * @param limit how many
     * @param window how long
     * @return the limit
     */
    public static Limit fixedWindow(long limit, Duration window) {
        return of(Rules.fixedWindow("fixed_window", permits("limit", limit, Values.PERMITS_MAX), span("window", window), false));
    }

    /**
     * So many permits in about every window, at the cost of two counters.
     *
     * @param limit how many, at most 2^32 - 1
     * @param window how long
     * @return the limit
     */
    public static Limit slidingCounter(long limit, Duration window) {
        return of(Rules.slidingCounter("sliding_counter", permits("limit", limit, Values.PERMITS_MAX - 1), span("window", window)));
    }

    /**
     * So many permits in every window, exactly.
     *
     * @param limit how many, at most 2,500
     * @param window how long
     * @return the limit
     */
    public static Limit slidingLog(long limit, Duration window) {
        return of(Rules.slidingLog("sliding_log", permits("limit", limit, 2_500), span("window", window)));
    }

    /**
     * So many permits that are held at a time.
     *
     * @param limit how many, at most 1,000
     * @param ttl after which one that is neither released nor renewed comes back
     * @return the limit
     */
    public static Limit concurrency(long limit, Duration ttl) {
        return of(Rules.concurrency("concurrency", permits("limit", limit, 1_000), span("ttl", ttl)));
    }

    /**
     * What holds while Redis does not answer; {@link OnStoreFailure#LOCAL} unless it is said.
     *
     * @param how what holds
     * @return the limit
     */
    public Limit onStoreFailure(OnStoreFailure how) {
        return new Limit(rules, withBurst, how);
    }

    /**
     * Both limits at once: a request passes if both agree. They must be of different algorithms.
     *
     * @param other the other limit
     * @return the limit
     */
    public Limit and(Limit other) {
        List<Rule> both = new ArrayList<>(rules);
        both.addAll(other.rules);
        if (both.size() > RuleSet.RULES_MAX || both.stream().map(Rule::name).distinct().count() < both.size()) {
            throw wrong("at most 8 limits, of different algorithms");
        }
        return new Limit(both, null, onStoreFailure);
    }

    Policy policy(String name) {
        if (!Values.isName(name)) {
            throw wrong("name: `" + name + "` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
        }
        RuleSet set = new RuleSet(Carry.USAGE, rules);
        if (set.costsTooMuch()) {
            throw wrong("one decision could take Redis too long");
        }
        return new Policy(name, 0, "", null, set, Map.of(), Over.REJECT, onStoreFailure, 0);
    }
}
