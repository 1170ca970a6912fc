package io.sluicegate;

import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;

/** What stands behind a limiter: Redis, a server, the memory of the process, or a way of a program's own. */
public interface Transport {
    /**
     * Decides.
     *
     * @param call what is asked
     * @return the decision, a refusal too
     * @throws SluicegateException where nobody can decide
     * @throws InterruptedException if the thread is interrupted while it waits
     */
    Decision decide(Call call) throws InterruptedException;

    /** {@return what runs calls whose callers do not wait; one for calls that block is of its own} */
    default Executor executor() {
        return ForkJoinPool.commonPool();
    }
}
