package io.sluicegate;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A permit that is held. Closing it gives it back; without that it lapses after the ttl of its rule. One that passed over the limit
 * ({@code overflow: shadow}) holds nothing: it is renewed and closed without a call. It is safe for all threads.
 */
public final class Permit implements AutoCloseable {
    private final Limiter limiter;
    private final String key;
    private final String id;
    private final Decision decision;
    private final AtomicBoolean released = new AtomicBoolean();

    Permit(Limiter limiter, String key, String id, Decision decision) {
        this.limiter = limiter;
        this.key = key;
        this.id = id;
        this.decision = decision;
    }

    /** {@return the name by which it is held} */
    public String id() {
        return id;
    }

    /** {@return the decision that granted it} */
    public Decision decision() {
        return decision;
    }

    /** {@return the decision to hold it for another ttl; refused if it has lapsed} */
    public Decision renew() {
        return holdsNothing() ? decision : limiter.renew(key, id);
    }

    /**
     * Gives it back, once. A store that does not answer is no reason to fail the work that is done: the permit lapses then.
     */
    @Override
    public void close() {
        if (!released.compareAndSet(false, true) || holdsNothing()) {
            return;
        }
        try {
            limiter.release(key, id);
        } catch (SluicegateException e) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.DEBUG, "a permit was not released and will lapse", e);
        }
    }

    private boolean holdsNothing() {
        return !decision.allowed() || decision.overflow() != null;
    }
}
