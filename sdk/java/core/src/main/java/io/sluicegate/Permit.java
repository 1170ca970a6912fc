package io.sluicegate;

import io.sluicegate.internal.Alarm;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A permit that is held. Closing it gives it back; without that it lapses after the ttl of its rule. One that passed over the limit
 * ({@code overflow: shadow}) holds nothing: it is renewed and closed without a call. It is safe for all threads.
 */
public final class Permit implements AutoCloseable {
    /** Renewals within a ttl: so two may fail. */
    private static final int RENEWALS_PER_TTL = 3;
    /** The shortest time between two renewals: a ttl is a second at least. */
    private static final long RENEWAL_MIN_US = 100_000;
    private static final Alarm LAPSED = new Alarm();

    private final Limiter limiter;
    private final String key;
    private final String id;
    private final Decision decision;
    private final AtomicBoolean released = new AtomicBoolean();
    private final AtomicBoolean renews = new AtomicBoolean();
    private volatile CompletableFuture<Void> nextRenewal;

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
     * Renews it at each third of its ttl until it is closed, in the background. So work may take longer than the ttl, and what is not
     * closed because the process ended lapses soon. If it lapses nevertheless, as nobody answered for a ttl, the log has it and the renewals
     * end; the work goes on.
     *
     * @return this permit
     */
    public Permit renewUntilClosed() {
        boolean lapses = !holdsNothing() && decision.resetAfterUs() > 0;
        if (lapses && renews.compareAndSet(false, true)) {
            renewLater();
        }
        return this;
    }

    // Right after a grant, the last permit of the key to lapse is this one.
    private void renewLater() {
        CompletableFuture<Void> next = new CompletableFuture<Void>()
            .completeOnTimeout(null, Math.max(decision.resetAfterUs() / RENEWALS_PER_TTL, RENEWAL_MIN_US), TimeUnit.MICROSECONDS);
        nextRenewal = next;
        if (released.get()) {
            next.cancel(false);
            return;
        }
        next.thenComposeAsync(due -> limiter.renewAsync(key, id)).whenComplete((renewed, problem) -> {
            if (released.get()) {
                return;
            }
            if (problem == null && !renewed.allowed()) {
                LAPSED.raise(limiter.policy(), "a permit of policy `" + limiter.policy() + "` lapsed while it was in use: it was not renewed in time");
                return;
            }
            renewLater();
        });
    }

    /**
     * Gives it back, once. A store that does not answer is no reason to fail the work that is done: it is asked again after a second, and
     * if it does not answer then, the permit lapses. An interrupt of the thread is kept, and the permit is given back in the background.
     */
    @Override
    public void close() {
        if (!begin()) {
            return;
        }
        try {
            releasedBy(limiter.release(key, id));
        } catch (SluicegateException e) {
            if (e.code() == ErrorCode.INTERRUPTED) {
                limiter.abandon(key, id);
            } else {
                notReleased(e);
            }
        }
    }

    /**
     * As {@link #close()}, without blocking.
     *
     * @return a future that completes when it is given back or will lapse; it does not fail
     */
    public CompletableFuture<Void> closeAsync() {
        if (!begin()) {
            return CompletableFuture.completedFuture(null);
        }
        return limiter.releaseAsync(key, id).handle((decided, problem) -> {
            if (problem != null) {
                notReleased(problem);
            } else {
                releasedBy(decided);
            }
            return null;
        });
    }

    private boolean begin() {
        if (!released.compareAndSet(false, true)) {
            return false;
        }
        CompletableFuture<Void> next = nextRenewal;
        if (next != null) {
            next.cancel(false);
        }
        return !holdsNothing();
    }

    private void notReleased(Throwable problem) {
        System.getLogger("io.sluicegate").log(System.Logger.Level.DEBUG, "a permit was not released", problem);
        limiter.abandonLater(key, id);
    }

    // A share released it. Redis may hold it as well: by a grant that came too late.
    private void releasedBy(Decision decision) {
        if (decision.mode() == Mode.LOCAL) {
            limiter.abandonLater(key, id);
        }
    }

    private boolean holdsNothing() {
        return !decision.allowed() || decision.overflow() != null;
    }
}
