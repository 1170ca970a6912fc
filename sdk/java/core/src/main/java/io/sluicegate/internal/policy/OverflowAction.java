package io.sluicegate.internal.policy;

import io.sluicegate.Overflow;
import io.sluicegate.Verb;

/**
 * The treatment of a request over the limit.
 *
 * @param result the overflow of the decision; null for a plain refusal
 * @param queueMaxWaitUs how long a check is held back, in µs; 0 if it is not
 */
public record OverflowAction(Overflow result, long queueMaxWaitUs) {
    /** The request is refused. */
    public static final OverflowAction REJECT = new OverflowAction(null, 0);
    /** The request passes. */
    public static final OverflowAction SHADOW = new OverflowAction(new Overflow.Shadow(), 0);

    /**
     * {@return whether it decides on what the rules refuse} A permit that passed in the shadow holds nothing, so there a renewal
     * or release of what is not held passes as well.
     *
     * @param verb the verb of the request
     */
    public boolean covers(Verb verb) {
        return switch (verb) {
            case CHECK, RESERVE, ACQUIRE -> true;
            case RELEASE, RENEW -> isShadow();
            default -> false;
        };
    }

    /** {@return whether it passes} */
    public boolean isShadow() {
        return result instanceof Overflow.Shadow;
    }
}
