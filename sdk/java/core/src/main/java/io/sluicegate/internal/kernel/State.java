package io.sluicegate.internal.kernel;

/**
 * Usage of one rule's budget of one key: the arithmetic without Redis. It never admits more than the rule's algorithm in any
 * interval; it may admit less. Times are µs.
 */
abstract class State {
    /**
     * The answer of one rule to a request.
     *
     * @param passes whether the rule agrees
     * @param us the wait if it agrees, else the time until a retry, or {@link Numbers#NEVER}
     */
    record Outcome(boolean passes, long us) {
        static final Outcome NOW = new Outcome(true, 0);
        static final Outcome NEVER = new Outcome(false, Numbers.NEVER);
    }

    /** {@return a state that can be changed without changing this one} */
    abstract State copy();

    abstract Outcome check(long now, long cost, long maxWaitUs);

    abstract void charge(long now, long cost, PermitId permit);

    abstract long available(long now);

    /** {@return what answers report to be left} */
    long remaining(long now) {
        return available(now);
    }

    abstract long resetAfterUs(long now);

    /** {@return the permits given back, a part of one counting as one} */
    abstract long refund(long now, long cost);

    /** Puts a state right that is later than now; returns whether it was. */
    abstract boolean rewind(long now);

    /** {@return the permits in use, rounded up} */
    abstract long used(long now);
}
