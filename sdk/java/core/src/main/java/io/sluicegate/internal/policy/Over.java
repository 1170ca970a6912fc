package io.sluicegate.internal.policy;

import io.sluicegate.Overflow;

/**
 * What becomes of a check over the limit.
 *
 * @param result what the decision says of it; null for a plain refusal
 * @param queueMaxWaitUs how long a check is held back, in µs; 0 if it is not
 */
public record Over(Overflow result, long queueMaxWaitUs) {
    /** It is refused. */
    public static final Over REJECT = new Over(null, 0);
    /** It passes. */
    public static final Over SHADOW = new Over(new Overflow.Shadow(), 0);

    /** {@return whether it passes} */
    public boolean isShadow() {
        return result instanceof Overflow.Shadow;
    }
}
