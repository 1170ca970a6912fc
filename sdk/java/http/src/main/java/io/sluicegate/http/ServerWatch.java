package io.sluicegate.http;

import io.sluicegate.GateHealth;
import io.sluicegate.internal.Alarm;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/** The last sign of the server that the process saw: an answer, or why there was none. The log has it when that changes. */
final class ServerWatch {
    /** Time for which an answer, or the lack of one, holds for the health. */
    static final long LATELY_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final String MEANWHILE = "nothing decides meanwhile: requests get no decision, and filters answer 503";

    private final String address;
    private final Alarm alarm;
    private final LongSupplier nanos;
    private volatile String cause;
    private volatile boolean isHeardOf;
    private volatile long at;

    ServerWatch(String address, Alarm alarm, LongSupplier nanos) {
        this.address = address;
        this.alarm = alarm;
        this.nanos = nanos;
    }

    /** The server decided, or answered what is wrong with a request. */
    void answered() {
        record(null);
        alarm.clear("the server at " + address + " decides again");
    }

    /** The server did not decide. */
    void failed(String reason) {
        record(reason);
        alarm.raise(reason, "the server at " + address + " does not decide: " + reason + "; " + MEANWHILE);
    }

    private void record(String reason) {
        cause = reason;
        at = nanos.getAsLong();
        isHeardOf = true;
    }

    /** {@return whether it answered lately} */
    boolean isKnown() {
        return isHeardOf && nanos.getAsLong() - at < LATELY_NANOS;
    }

    /** {@return its last answer} */
    GateHealth health() {
        String reason = cause;
        return reason == null ? GateHealth.up(address) : new GateHealth(GateHealth.State.DOWN, address, reason, MEANWHILE);
    }
}
