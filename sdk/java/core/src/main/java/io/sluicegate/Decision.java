package io.sluicegate;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Optional;

/**
 * What was decided. A refusal is a decision too. Times are in µs, 0 to 2^53 - 1.
 *
 * @param allowed whether the caller may go on
 * @param granted permits granted or given back; 0 if refused
 * @param waitUs how long the caller still has to hold back what is allowed
 * @param limit the largest cost that the deciding rule ever lets pass at once
 * @param remaining permits left under that rule
 * @param retryAfterUs 0 if allowed; the time after which the same request can pass; {@link #NEVER} if it never can
 * @param resetAfterUs the time until that rule's budget is full
 * @param policy the policy's name
 * @param rule the name of the rule that decided
 * @param quotas what each rule of the policy permits, in its order
 * @param mode who decided
 * @param overflow what the policy makes of this request over its limit; null if nothing but a refusal
 * @param heldUs how long the request was held back before this decision was returned
 */
public record Decision(boolean allowed, long granted, long waitUs, long limit, long remaining, long retryAfterUs,
                       long resetAfterUs, String policy, String rule, List<Quota> quotas, Mode mode, Overflow overflow,
                       long heldUs) {
    /** The retry of a request that can never pass. */
    public static final long NEVER = -1;

    /** {@return how long the caller still has to hold back what is allowed} */
    public Duration waitTime() {
        return Duration.of(waitUs, ChronoUnit.MICROS);
    }

    /** {@return the time after which the same request can pass; empty if it never can} */
    public Optional<Duration> retryAfter() {
        return retryAfterUs == NEVER ? Optional.empty() : Optional.of(Duration.of(retryAfterUs, ChronoUnit.MICROS));
    }

    /** {@return the time until the budget of the deciding rule is full} */
    public Duration resetAfter() {
        return Duration.of(resetAfterUs, ChronoUnit.MICROS);
    }

    /** {@return whether the policy said that this request would not pass, in a way of its own} */
    public boolean isOverLimit() {
        return !allowed || overflow != null;
    }

    /**
     * Turns a refusal into an exception.
     *
     * @return this decision, if it allows
     * @throws RateLimitExceededException if it refuses
     */
    public Decision orThrow() {
        if (!allowed) {
            throw new RateLimitExceededException(this);
        }
        return this;
    }
}
