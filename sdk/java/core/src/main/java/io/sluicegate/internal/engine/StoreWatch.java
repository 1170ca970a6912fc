package io.sluicegate.internal.engine;

import io.sluicegate.internal.Alarm;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** The last sign of Redis that the process saw: an answer, or why there was none. The log has it when that changes. */
final class StoreWatch {
    /** Time for which an answer holds: three times as long as the pause between two looks at the policies. */
    static final long LATELY_NANOS = TimeUnit.SECONDS.toNanos(30);

    /** Time without a late request after which Redis no longer counts as busy. */
    static final long CALM_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final String address;
    private final Supplier<String> meanwhile;
    private final Alarm alarm;
    private final Alarm busy;
    private final LongSupplier nanos;
    private volatile boolean isBusy;
    private volatile long busyAt;
    private volatile long answeredAt;
    private volatile boolean hasAnswered;
    private volatile String cause;

    /** {@code meanwhile} returns what decides while Redis does not. */
    StoreWatch(String address, Supplier<String> meanwhile, Supplier<Alarm> alarms, LongSupplier nanos) {
        this.address = address;
        this.meanwhile = meanwhile;
        this.alarm = alarms.get();
        this.busy = alarms.get();
        this.nanos = nanos;
    }

    String address() {
        return address;
    }

    /** Redis answered. */
    void answered() {
        answeredAt = nanos.getAsLong();
        hasAnswered = true;
        if (cause != null) {
            cause = null;
            alarm.clear("the Redis at " + address + " decides again");
        }
        if (isBusy && answeredAt - busyAt > CALM_NANOS) {
            isBusy = false;
            busy.clear("the Redis at " + address + " answers in time again");
        }
    }

    /** Redis answers, and did not decide in time. */
    void shed(String reason) {
        busyAt = nanos.getAsLong();
        isBusy = true;
        busy.raise(reason, "the Redis at " + address + " did not decide in time: " + reason + "; such requests are refused, with a retry after 100 ms");
    }

    /** Redis did not answer. */
    void failed(String reason) {
        cause = reason;
        alarm.raise(reason, "the Redis at " + address + " does not decide: " + reason + "; " + meanwhile.get());
    }

    /** {@return why Redis does not answer; null if it answered lately} */
    String problem() {
        String lastCause = cause;
        if (lastCause != null) {
            return lastCause;
        }
        return hasAnswered && nanos.getAsLong() - answeredAt < LATELY_NANOS ? null : "it was not heard of lately";
    }
}
