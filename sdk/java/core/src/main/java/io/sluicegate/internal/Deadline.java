package io.sluicegate.internal;

import java.util.concurrent.TimeUnit;

/**
 * The deadline of a request to Redis or to a server. In the first seconds after the first decision it is a longer one: a process that has
 * just started loads and compiles what it runs, all callers at once, and that is no silence of the other side. Times are those of {@link System#nanoTime}.
 */
public final class Deadline {
    /** The shortest deadline in the first seconds: 50 first requests of a JVM on two busy cores were answered within 300 ms. */
    public static final long FIRST_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
    /** The first seconds: after so long the compiler has seen what a program does often. */
    public static final long FIRST_SECONDS_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final long nanos;
    private volatile boolean isOver;
    private boolean hasBegun;
    private long until;

    /** {@code startsCold} is whether there are first seconds. */
    public Deadline(long nanos, boolean startsCold) {
        this.nanos = nanos;
        this.isOver = !startsCold || nanos >= FIRST_NANOS;
    }

    /** {@return the deadline of a decision; with the first one the first seconds begin} */
    public long ofDecision(long now) {
        return isOver ? nanos : first(now, true);
    }

    /** {@return the deadline of a command beside decisions} */
    public long ofLook(long now) {
        return isOver ? nanos : first(now, false);
    }

    private synchronized long first(long now, boolean begins) {
        if (begins && !hasBegun) {
            hasBegun = true;
            until = now + FIRST_SECONDS_NANOS;
        }
        isOver = hasBegun && now - until >= 0;
        return isOver ? nanos : FIRST_NANOS;
    }
}
