package io.sluicegate.internal;

import io.sluicegate.Decision;
import java.util.concurrent.Executor;

/** What stands behind a limiter: Redis, a server or the memory of the process. */
public interface Transport {
    /** Decides, and throws a {@link io.sluicegate.SluicegateException} where nobody can. */
    Decision decide(Call call) throws InterruptedException;

    /** {@return who runs calls whose callers do not wait} */
    Executor executor();
}
