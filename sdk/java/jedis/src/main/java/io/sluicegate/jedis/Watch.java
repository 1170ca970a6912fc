package io.sluicegate.jedis;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One thread that ends connections whose calls last longer than they may. A socket's own timeout begins anew with each byte,
 * so it does not end a reply that comes in drops.
 */
final class Watch implements AutoCloseable {
    /** By how much a call may be late: little beside a deadline, and few looks. */
    private static final long LOOK_MS = 10;

    private final Set<Line> lines = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;
    private volatile Thread thread;

    /** Looks after a connection until it is forgotten. */
    void over(Line line) {
        if (lines.add(line) && thread == null) {
            begin();
        }
    }

    void forget(Line line) {
        lines.remove(line);
    }

    private synchronized void begin() {
        if (thread == null && !closed) {
            Thread looks = new Thread(this::look, "sluicegate-watch");
            looks.setDaemon(true);
            looks.start();
            thread = looks;
        }
    }

    private void look() {
        try {
            while (!closed) {
                Thread.sleep(LOOK_MS);
                long now = System.nanoTime();
                lines.forEach(line -> line.endIfLate(now));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public synchronized void close() {
        closed = true;
        if (thread != null) {
            thread.interrupt();
        }
    }
}
