package io.sluicegate.lettuce;

import io.sluicegate.RedisPort.Failure;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The reply to a command that was begun, or a {@link Failure}. A caller that blocks waits by {@link #await}, another one takes
 * {@link #within}: both end it by {@link #expire}, and what comes after that changes nothing.
 */
abstract class Reply extends CompletableFuture<Object> {
    /** Ends it with a failure, as its time is over, unless it is there. */
    abstract void expire();

    /** {@return the reply, for which the thread waits} */
    final Object await(long nanos) throws Failure, InterruptedException {
        try {
            try {
                return get(nanos, TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                expire();
                return get();
            }
        } catch (ExecutionException e) {
            throw (Failure) e.getCause();
        }
    }

    /** {@return this reply, which expires after a time} */
    final Reply within(long nanos) {
        if (!isDone()) {
            CompletableFuture<Void> time = after(nanos);
            time.thenRun(this::expire);
            whenComplete((reply, failure) -> time.cancel(false));
        }
        return this;
    }

    /** {@return the end of a time} */
    static CompletableFuture<Void> after(long nanos) {
        return new CompletableFuture<Void>().completeOnTimeout(null, nanos, TimeUnit.NANOSECONDS);
    }
}
