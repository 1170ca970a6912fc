package io.sluicegate.internal.kernel;

/**
 * The arithmetic of one rule without Redis. It never admits more than its algorithm in any interval; it may admit less. It
 * holds the numbers of the rule and no state, so all threads may use it.
 */
public abstract class Primitive {
    /** {@return the largest cost that ever passes at once} */
    public abstract long limit();

    abstract Outcome check(State state, At at, long cost, long maxWaitUs);

    abstract State charge(State state, At at, long cost, PermitId permit);

    /** {@return the state that a first, refused request leaves, or null} */
    State firstSeen(At at) {
        return null;
    }

    abstract long available(State state, At at);

    abstract Status status(State state, At at);

    /** {@return the permits given back, a part of one counting as one} */
    abstract long refund(State state, At at, long cost);

    /** Puts a state right that is later than now; returns whether it was. */
    abstract boolean rewind(State state, At at);

    abstract long used(State state, At at);

    /** {@return the state with so many permits used now, or null} */
    abstract State withUsed(At at, long used);
}
