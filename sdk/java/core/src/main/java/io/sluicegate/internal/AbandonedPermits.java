package io.sluicegate.internal;

import io.sluicegate.Decision;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Permits that may be held and that nobody will give back: the caller of an {@code acquire} was interrupted, cancelled its future or got no
 * answer. Each is released, and once more after a second if it was not held yet or nobody answered, as the {@code acquire} may arrive after its
 * release. It is best effort: what is not released lapses after its ttl.
 */
public final class AbandonedPermits {
    /** Permits that are released at a time; more lapse. So many calls are under way at a gate at most. */
    static final int RELEASING_MAX = AsyncCalls.CALLS_MAX;
    private static final long AGAIN_MS = 1_000;
    private static final Semaphore ROOM = new Semaphore(RELEASING_MAX);

    private AbandonedPermits() {}

    /** Releases a permit by {@code release}, which does not block, now and perhaps once more. */
    public static void release(Supplier<CompletableFuture<Decision>> release) {
        if (!ROOM.tryAcquire()) {
            return;
        }
        attempt(release).whenComplete((decision, problem) -> {
            if (problem == null && decision.allowed()) {
                ROOM.release();
            } else {
                later(release);
            }
        });
    }

    /** Releases a permit after a second: somebody tried, and got no answer. */
    public static void releaseLater(Supplier<CompletableFuture<Decision>> release) {
        if (ROOM.tryAcquire()) {
            later(release);
        }
    }

    private static void later(Supplier<CompletableFuture<Decision>> release) {
        new CompletableFuture<Void>().completeOnTimeout(null, AGAIN_MS, TimeUnit.MILLISECONDS)
            .thenComposeAsync(over -> attempt(release)).whenComplete((decision, problem) -> ROOM.release());
    }

    private static CompletableFuture<Decision> attempt(Supplier<CompletableFuture<Decision>> release) {
        try {
            return release.get();
        } catch (RuntimeException e) {
            return CompletableFuture.failedFuture(e);
        }
    }
}
