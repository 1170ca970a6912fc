package io.sluicegate.internal.kernel;

/** The numbers of one rule, by which its states decide without Redis. It is never changed, so all threads may use it. */
public abstract class Primitive {
    /** {@return the largest cost that ever passes at once} */
    abstract long limit();

    /** {@return the state of a key that was never seen} */
    abstract State fresh(long now);

    /** {@return whether a first request leaves a state although it is refused} */
    boolean beginsRefused() {
        return false;
    }

    /** {@return the state with so many permits used now, which in a calendar count until {@code till}; or null} */
    abstract State withUsed(long now, long till, long used);
}
