package io.sluicegate.internal;

import io.sluicegate.ErrorCode;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Daemon threads for calls whose callers do not wait. They are made when they are needed, and end when they are not. Where all of them are
 * blocked, as by stages that wait for other calls, there are more.
 */
public final class AsyncPool extends ThreadPoolExecutor {
    /** Calls that block at a time, and threads; a call mostly waits for its answer, so more than processors are of use. */
    public static final int CALLS_AT_ONCE_MAX = 64;
    /** Tasks that wait for so long while none ends have blocked threads before them. */
    private static final long BLOCKED_MS = 100;
    /** Tasks that wait for a thread; more calls are refused, as they would only wait past their deadlines. */
    private static final int WAITING_MAX = AsyncCalls.CALLS_MAX;

    private final AtomicBoolean watched = new AtomicBoolean();

    /** Makes a pool of so many threads, as long as they are not blocked; it begins without any. */
    public AsyncPool(int threads) {
        super(threads, CALLS_AT_ONCE_MAX, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(WAITING_MAX), task -> {
            Thread thread = new Thread(task, "sluicegate-call");
            thread.setDaemon(true);
            return thread;
        });
        allowCoreThreadTimeOut(true);
    }

    /** {@return a future of the result of a call that blocks} Cancelling the future interrupts the call. */
    public static <T> CompletableFuture<T> submit(Executor executor, Callable<T> call) {
        CompletableFuture<T> future = new CompletableFuture<>();
        FutureTask<Boolean> task = new FutureTask<>(() -> {
            try {
                return future.complete(call.call());
            } catch (InterruptedException e) {
                return future.completeExceptionally(interrupted("the thread was interrupted"));
            } catch (Exception e) {
                return future.completeExceptionally(e);
            }
        }) {
            @Override
            protected void done() {
                if (isCancelled()) {
                    future.completeExceptionally(interrupted("the gate was closed"));
                }
            }
        };
        future.whenComplete((value, problem) -> task.cancel(future.isCancelled()));
        try {
            executor.execute(task);
        } catch (RejectedExecutionException e) {
            future.completeExceptionally(AsyncCalls.tooMany());
        }
        return future;
    }

    @Override
    public void execute(Runnable task) {
        super.execute(task);
        watch();
    }

    private void watch() {
        if (getQueue().isEmpty() || getCorePoolSize() == CALLS_AT_ONCE_MAX || !watched.compareAndSet(false, true)) {
            return;
        }
        long ended = getCompletedTaskCount();
        new CompletableFuture<Void>().completeOnTimeout(null, BLOCKED_MS, TimeUnit.MILLISECONDS).thenRun(() -> {
            watched.set(false);
            if (getCompletedTaskCount() == ended && !getQueue().isEmpty()) {
                setCorePoolSize(Math.min(2 * getCorePoolSize(), CALLS_AT_ONCE_MAX));
            }
            watch();
        });
    }

    static RuntimeException interrupted(String cause) {
        return ErrorCode.INTERRUPTED.with(Map.of("cause", cause));
    }

    /** Interrupts the calls under way, and ends those that wait. */
    public void close() {
        for (Runnable waiting : shutdownNow()) {
            if (waiting instanceof Future<?> call) {
                call.cancel(true);
            } else {
                waiting.run();
            }
        }
    }
}
