package io.sluicegate.internal.policy;

import io.sluicegate.Decision;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.Verb;
import io.sluicegate.internal.Decided;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.RuleSet;
import java.util.List;
import java.util.Map;

/**
 * A policy as it can be decided.
 *
 * @param name its name
 * @param version which grows with every change
 * @param sinceMs when a server took this version over, in ms since 1970; {@link #SINCE_UNKNOWN} if it does not publish it
 * @param app the app that owns it; empty if none does
 * @param apps which apps may use it; {@code *} is every app
 * @param rules the rules of keys without an override
 * @param overrides the rules of others
 * @param overflow what becomes of requests over the limit
 * @param onStoreFailure what is decided while Redis does not answer
 */
public record Policy(String name, long version, long sinceMs, String app, List<String> apps, RuleSet rules, Map<String, OwnRules> overrides,
                     OverflowAction overflow, OnStoreFailure onStoreFailure) {
    /**
     * Rules of one key in place of the policy's.
     *
     * @param rules the rules
     * @param endsMs when the policy's hold again, in ms since 1970; {@link #ENDLESS}: never
     */
    public record OwnRules(RuleSet rules, long endsMs) {
        /** They do not end. */
        public static final long ENDLESS = Long.MAX_VALUE;
    }

    /** The server does not publish since when it holds the version. */
    public static final long SINCE_UNKNOWN = -1;

    /** {@return whether it is the same version, whenever a server took it over} */
    public boolean isVersionOf(Policy other) {
        return version == other.version && equals(new Policy(other.name, other.version, sinceMs, other.app, other.apps, other.rules,
            other.overrides, other.overflow, other.onStoreFailure));
    }

    /**
     * {@return the rules of a key}
     *
     * @param key the key; empty for the budget that all share
     * @param nowMs the time, in ms since 1970
     */
    public RuleSet rulesOf(String key, long nowMs) {
        OwnRules own = overrides.isEmpty() ? null : overrides.get(key);
        return own == null || own.endsMs <= nowMs ? rules : own.rules;
    }

    /**
     * {@return the instant from which the rules of a key apply, in ms since 1970}
     *
     * @param takenOverMs when the policy was taken over
     * @param nowMs the time
     */
    public long sinceMs(String key, long takenOverMs, long nowMs) {
        OwnRules own = overrides.isEmpty() ? null : overrides.get(key);
        return own == null || own.endsMs > nowMs ? takenOverMs : Math.max(takenOverMs, own.endsMs);
    }

    /** {@return whether an app may check it; {@code app} may be null} */
    public boolean isFor(String app) {
        return apps.contains("*") || app != null && apps.contains(app);
    }

    /** {@return whether an app may refund, reset and settle} */
    public boolean isOwnedBy(String app) {
        return this.app.isEmpty() ? isFor(app) : this.app.equals(app) || app != null && apps.contains(app);
    }

    /**
     * {@return the decision that an answer comes to}
     *
     * @param rules that decided
     * @param verb the verb of the request
     * @param answer the answer of the rules
     * @param mode what decided
     * @param heldUs how long the request was held back
     */
    public Decision decision(RuleSet rules, Verb verb, Answer answer, Mode mode, long heldUs) {
        boolean covered = !answer.allowed() && overflow.covers(verb);
        boolean shadow = covered && overflow.isShadow();
        return new Decided(answer.allowed() || shadow, answer.granted(), Math.max(answer.waitUs() - heldUs, 0), answer.limit(),
            answer.remaining(), shadow ? 0 : answer.retryAfterUs(), answer.resetAfterUs(), name, rules.rules().get(answer.rule()).name(),
            rules.quotas(), mode, covered ? overflow.result() : null, heldUs);
    }
}
