package io.sluicegate;

import io.sluicegate.internal.AsyncPool;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
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
     * {@link #decide} on their {@link #executor}, and interrupt it if the future is cancelled.
     *
     * @param call the request
     * @return a future of the decision; it fails with what {@code decide} would throw, which is
     *     {@link ErrorCode#INTERRUPTED} where that is interrupted
     */
    default CompletableFuture<Decision> decideAsync(Call call) {
        return AsyncPool.submit(executor(), () -> decide(call));
    }

    /** {@return what runs calls that block and whose callers do not wait; one for such calls is of its own} */
    default Executor executor() {
        return ForkJoinPool.commonPool();
    }
}
