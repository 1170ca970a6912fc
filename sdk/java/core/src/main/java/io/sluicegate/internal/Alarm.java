package io.sluicegate.internal;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;

/**
 * Something that is wrong for a time: the log has one line a minute for each cause, and one when it is over. So an outage floods no log,
 * and is in it.
 */
public final class Alarm {
    /** Causes that are remembered; there are a dozen, and others, such as the names of policies, come from outside. */
    static final int CAUSES_MAX = 100;
    /** Time between two lines about one cause. */
    static final long AGAIN_NANOS = 60_000_000_000L;
    private static final System.Logger LOG = System.getLogger("io.sluicegate");

    private final LongSupplier nanos;
    private final BiConsumer<System.Logger.Level, String> log;
    private final Map<String, Long> loggedAt = new HashMap<>();
    /** True while the log has a line that nothing has taken back. */
    private volatile boolean raised;
    private long since;
    /** Lines that are not written yet. */
    private final Queue<Line> waiting = new ArrayDeque<>();
    private volatile boolean isWriting;

    /** Makes one that writes to the log {@code io.sluicegate}. */
    public Alarm() {
        this(System::nanoTime, LOG::log);
    }

    /** {@return one that writes nothing} */
    public static Alarm silent() {
        return new Alarm(System::nanoTime, (level, line) -> { });
    }

    Alarm(LongSupplier nanos, BiConsumer<System.Logger.Level, String> log) {
        this.nanos = nanos;
        this.log = log;
    }

    /** Logs a line, unless the log has one about this cause of the last minute. */
    public void raise(String cause, String line) {
        synchronized (this) {
            if (!isDue(cause)) {
                return;
            }
            waiting.add(new Line(System.Logger.Level.WARNING, Texts.truncate(line)));
        }
        write();
    }

    private boolean isDue(String cause) {
        long now = nanos.getAsLong();
        Long last = loggedAt.get(cause);
        if (last != null && now - last < AGAIN_NANOS) {
            return false;
        }
        if (last == null && loggedAt.size() >= CAUSES_MAX) {
            loggedAt.values().removeIf(at -> now - at >= AGAIN_NANOS);
            if (loggedAt.size() >= CAUSES_MAX) {
                return false;
            }
        }
        loggedAt.put(cause, now);
        since = raised ? since : now;
        raised = true;
        return true;
    }

    /** {@return whether the log has a line of the last minute} Until then this alarm has to be remembered. */
    public synchronized boolean isRecent() {
        long now = nanos.getAsLong();
        return loggedAt.values().stream().anyMatch(at -> now - at < AGAIN_NANOS);
    }

    /** Logs that it is over, if the log has a line about it. */
    public void clear(String line) {
        if (!raised) {
            return;
        }
        synchronized (this) {
            if (!raised) {
                return;
            }
            raised = false;
            long lasted = nanos.getAsLong() - since;
            String after = lasted < 1_000_000_000L ? lasted / 1_000_000L + " ms" : lasted / 1_000_000_000L + " s";
            waiting.add(new Line(System.Logger.Level.INFO, line + ", after " + after));
        }
        write();
    }

    // Outside of the lock, as a log may ask the gate; and by one thread at a time, so that the lines are in the order of what happened.
    private void write() {
        for (Line next = take(); next != null; next = take()) {
            try {
                log.accept(next.level, next.text);
            } finally {
                isWriting = false;
            }
        }
    }

    private synchronized Line take() {
        Line next = isWriting ? null : waiting.poll();
        isWriting |= next != null;
        return next;
    }

    private record Line(System.Logger.Level level, String text) {}
}
