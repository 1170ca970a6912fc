package io.sluicegate;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Optional;

/** A decision is the answer to a request. A refusal is a decision too. Times are in µs, 0 to 2^53 - 1. */
public interface Decision {
    /** The retry of a request that can never pass. */
    long NEVER = -1;

    /** {@return whether the caller may go on} */
    boolean allowed();

    /** {@return the permits granted or given back; 0 if refused} */
    long granted();

    /** {@return how long the caller still has to hold back what is allowed} */
    long waitUs();

    /** {@return the largest cost that the deciding rule ever lets pass at once} */
    long limit();

    /** {@return the permits left under that rule} */
    long remaining();

    /** {@return 0 if allowed; the time after which the same request can pass; {@link #NEVER} if it never can} */
    long retryAfterUs();

    /** {@return the time until that rule's budget is full} */
    long resetAfterUs();

    /** {@return the policy's name} */
    String policy();

    /** {@return the name of the rule that decided} */
    String rule();

    /** {@return what each rule of the policy permits, in its order} */
    List<Quota> quotas();

    /** {@return what decided} */
    Mode mode();

    /** {@return what the policy makes of this request over its limit; null if nothing but a refusal} */
    Overflow overflow();

    /** {@return how long the request was held back before this decision was returned} */
    long heldUs();

    /** {@return how long the caller still has to hold back what is allowed} */
    default Duration waitTime() {
        return Duration.of(waitUs(), ChronoUnit.MICROS);
    }

    /** {@return the time after which the same request can pass; empty if it never can} */
    default Optional<Duration> retryAfter() {
        return retryAfterUs() == NEVER ? Optional.empty() : Optional.of(Duration.of(retryAfterUs(), ChronoUnit.MICROS));
    }

    /** {@return the time until the budget of the deciding rule is full} */
    default Duration resetAfter() {
        return Duration.of(resetAfterUs(), ChronoUnit.MICROS);
    }

    /** {@return whether the policy said that this request would not pass, in a way of its own} */
    default boolean isOverLimit() {
        return !allowed() || overflow() != null;
    }

    /**
     * Turns a refusal into an exception.
     *
     * @return this decision, if it allows
     * @throws RateLimitExceededException if it refuses
     */
    default Decision orThrow() {
        if (!allowed()) {
            throw new RateLimitExceededException(this);
        }
        return this;
    }
}
