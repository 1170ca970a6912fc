package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

import java.util.function.LongUnaryOperator;

/**
 * The arithmetic of one rule: the twin of the Lua file of the same name beside the kernel of the server, with the same
 * steps in the same order. It holds the numbers of the rule and no state, so all threads may use it.
 */
public abstract class Algorithm {
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

    /** {@return the state of this algorithm under earlier numbers as one of these} */
    abstract State convert(State state, At at, Algorithm old);

    /** {@return the state with its counts scaled where they are, or null if they cannot stay there} */
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm old) {
        return null;
    }

    /** {@return the time from an empty to a full budget, in µs} */
    abstract long fillUs();

    static long left(long limit, long used) {
        return Math.max(limit - used, 0);
    }

    static long atMostUnits(double permits) {
        return permits < UNITS_MAX ? (long) permits : UNITS_MAX;
    }
}
