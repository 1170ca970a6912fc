package io.sluicegate;

import io.sluicegate.internal.AsyncPool;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinPool;

/** A limiter sends its calls to a transport: Redis, a server, the memory of the process, or a way of a program's own. */
public interface Transport {
    /**
     * Decides.
     *
     * @param call the request
     * @return the decision, a refusal too
     * @throws SluicegateException if there is no decision
     * @throws InterruptedException if the thread is interrupted while it waits
     */
    Decision decide(Call call) throws InterruptedException;

    /**
     * Decides without holding the thread of the caller. A transport that can wait without a thread does so here; others run
     * {@link #decide} on the common pool, and interrupt it if the future is cancelled.
     *
     * @param call the request
     * @return a future of the decision; it fails with what {@code decide} would throw, which is
     *     {@link ErrorCode#INTERRUPTED} where that is interrupted
     */
    default CompletableFuture<Decision> decideAsync(Call call) {
        return AsyncPool.submit(ForkJoinPool.commonPool(), () -> decide(call));
    }
}
