package io.sluicegate.internal;

import io.sluicegate.Acquisition;
import io.sluicegate.Decision;
import io.sluicegate.Limiter;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;

/**
 * The permits of a request, of which it may have several and some that are asked for still. Closing gives all of them back, whatever has become of
 * each. They are renewed until then.
 */
public final class HeldPermits {
    /** The last one first; a request has as many as it has filters or annotations. */
    private final Deque<CompletableFuture<Acquisition>> attempts = new ArrayDeque<>();
    private boolean closed;

    /** Makes an owner of no permits. */
    public HeldPermits() {
        // Its parts are made above.
    }

    /** {@return a future of the decision about a permit} {@code maxWait} is null for the wait of the policy. Once this is closed, the permit is given back. */
    public CompletableFuture<Decision> acquire(Limiter limiter, String key, long cost, Duration maxWait) {
        CompletableFuture<Acquisition> attempt = limiter.acquireAsync(key, cost, maxWait);
        if (!add(attempt)) {
            closeAsync(attempt);
        }
        // A stage would wrap the exception.
        CompletableFuture<Decision> decided = new CompletableFuture<>();
        attempt.whenComplete((acquired, problem) -> {
            if (problem != null) {
                decided.completeExceptionally(problem);
                return;
            }
            if (acquired.decision().allowed()) {
                acquired.orElseThrow().renewUntilClosed();
            }
            decided.complete(acquired.decision());
        });
        return decided;
    }

    /** {@return the decision about a permit, for which the thread waits} */
    public Decision acquireNow(Limiter limiter, String key, long cost, Duration maxWait) {
        Acquisition acquired = limiter.acquire(key, cost, maxWait);
        add(CompletableFuture.completedFuture(acquired));
        if (acquired.decision().allowed()) {
            acquired.orElseThrow().renewUntilClosed();
        }
        return acquired.decision();
    }

    private synchronized boolean add(CompletableFuture<Acquisition> attempt) {
        attempts.push(attempt);
        return !closed;
    }

    private synchronized Deque<CompletableFuture<Acquisition>> end() {
        closed = true;
        Deque<CompletableFuture<Acquisition>> all = new ArrayDeque<>(attempts);
        attempts.clear();
        return all;
    }

    /** Gives all back, and waits for it. */
    public void close() {
        for (CompletableFuture<Acquisition> attempt : end()) {
            if (!attempt.cancel(true) && !attempt.isCompletedExceptionally()) {
                attempt.join().close();
            }
        }
    }

    /** {@return a future that completes when all are given back or will lapse; it does not fail} */
    public CompletableFuture<Void> closeAsync() {
        return CompletableFuture.allOf(end().stream().map(HeldPermits::closeAsync).toArray(CompletableFuture[]::new));
    }

    // One that is cancelled gives its permit back by itself.
    private static CompletableFuture<Void> closeAsync(CompletableFuture<Acquisition> attempt) {
        return attempt.cancel(true) || attempt.isCompletedExceptionally() ? CompletableFuture.completedFuture(null) : attempt.join().closeAsync();
    }
}
