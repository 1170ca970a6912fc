package io.sluicegate.internal;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Daemon threads for calls whose callers do not wait. They are made when they are needed, and end when they are not. */
public final class AsyncPool extends ThreadPoolExecutor {
    /** Calls under way at a time; a call mostly waits for its answer, so more than processors are of use. */
    private static final int THREADS_MAX = 64;
    /** Calls that wait for a thread; more are refused, as they would only wait past their deadlines. */
    private static final int WAITING_MAX = 10_000;

    /** Makes a pool without threads. */
    public AsyncPool() {
        super(THREADS_MAX, THREADS_MAX, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(WAITING_MAX), task -> {
            Thread thread = new Thread(task, "sluicegate-call");
            thread.setDaemon(true);
            return thread;
        });
        allowCoreThreadTimeOut(true);
    }
}
