package io.sluicegate;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * A decision is the answer to a request. A refusal is a decision too. Times are in µs, 0 to 2^53 - 1; only {@link #retryAfterUs} may be
 * {@link #NEVER}. In the modes {@link Mode#ALLOW}, {@link Mode#DENY} and {@link Mode#SHED} no rule decided: {@link #rule} and
 * {@link #limit} are then those of the first rule, and {@link #remaining} and {@link #resetAfterUs} are 0.
 */
public interface Decision {
    /** The retry of a request that can never pass. */
    long NEVER = -1;

    /** {@return whether the request passes; the caller goes on after {@link #waitTime()}} */
    boolean allowed();

    /** {@return the permits granted or given back; 0 if refused} */
    long granted();

    /** {@return how long the caller still has to hold back what is allowed} */
    long waitUs();

    /** {@return the largest cost that the {@link #rule} ever lets pass at once} */
    long limit();

    /** {@return the permits left under that rule} */
    long remaining();

    /** {@return 0 if allowed; the time after which the same request can pass; {@link #NEVER} if it never can} */
    long retryAfterUs();

    /** {@return the time until that rule's budget is full} */
    long resetAfterUs();

    /** {@return the policy's name} */
    String policy();

    /** {@return the name of the rule that decided; if no rule did, that of the first} */
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

    /** {@return the time after which the same request can pass: 0 if it is allowed, empty if it never can} */
    default Optional<Duration> retryAfter() {
        return retryAfterUs() == NEVER ? Optional.empty() : Optional.of(Duration.of(retryAfterUs(), ChronoUnit.MICROS));
    }

    /** {@return the time until the budget of the deciding rule is full} */
    default Duration resetAfter() {
        return Duration.of(resetAfterUs(), ChronoUnit.MICROS);
    }

    /** {@return whether the request is refused, or passes only as its policy does not refuse ({@link Overflow.Shadow})} */
    default boolean isOverLimit() {
        return !allowed() || overflow() != null;
    }

    /**
     * Sleeps for {@link #waitTime()}, which is 0 of a refusal.
     *
     * @return this decision
     * @throws InterruptedException if the thread is interrupted while it sleeps; what was taken stays taken
     */
    default Decision sleep() throws InterruptedException {
        TimeUnit.MICROSECONDS.sleep(waitUs());
        return this;
    }

    /**
     * Turns a refusal into an exception.
     *
     * @return this decision, if it allows: {@linkplain #sleep() wait} first
     * @throws RateLimitExceededException if it refuses
     */
    default Decision orThrow() {
        if (!allowed()) {
            throw new RateLimitExceededException(this);
        }
        return this;
    }
}
