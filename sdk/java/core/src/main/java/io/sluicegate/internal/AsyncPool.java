package io.sluicegate.internal;

import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Daemon threads for calls whose callers do not wait. */
public final class AsyncPool implements Executor, AutoCloseable {
    /** Calls under way at a time; a call mostly waits for its answer, so more than processors are of use. */
    private static final int THREADS_MAX = 64;
    /** Calls that wait for a thread; more are refused, as they would only wait past their deadlines. */
    private static final int WAITING_MAX = 10_000;

    private final ThreadPoolExecutor pool = new ThreadPoolExecutor(THREADS_MAX, THREADS_MAX, 10, TimeUnit.SECONDS,
        new LinkedBlockingQueue<>(WAITING_MAX), task -> {
            Thread thread = new Thread(task, "sluicegate-call");
            thread.setDaemon(true);
            return thread;
        });

    /** Threads are made when they are needed, and end when they are not. */
    public AsyncPool() {
        pool.allowCoreThreadTimeOut(true);
    }

    @Override
    public void execute(Runnable task) {
        pool.execute(task);
    }

    @Override
    public void close() {
        pool.shutdownNow();
    }
}
