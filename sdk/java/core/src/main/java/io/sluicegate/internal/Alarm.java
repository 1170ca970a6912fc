package io.sluicegate.internal;

import java.util.HashMap;
import java.util.Map;
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
        if (isDue(cause)) {
            log.accept(System.Logger.Level.WARNING, Texts.truncate(line));
        }
    }

    private synchronized boolean isDue(String cause) {
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
        long lasted;
        synchronized (this) {
            if (!raised) {
                return;
            }
            raised = false;
            lasted = nanos.getAsLong() - since;
        }
        log.accept(System.Logger.Level.INFO, line + ", after " + (lasted < 1_000_000_000L ? lasted / 1_000_000L + " ms" : lasted / 1_000_000_000L + " s"));
    }
}
