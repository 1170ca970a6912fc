package io.sluicegate.http;

import io.sluicegate.GateHealth;
import io.sluicegate.internal.Alarm;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** The last sign of the server that the process saw: an answer, or why there was none. The log has it when that changes. */
final class ServerWatch {
    /** Time for which an answer, or the lack of one, holds for the health. */
    static final long LATELY_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** Policies that are remembered as ones that the server lacks; their names may come from outside. */
    static final int LACKING_MAX = 100;
    private static final String MEANWHILE = "nothing decides meanwhile: requests get no decision, and filters answer 503";

    private final String address;
    private final Alarm alarm;
    private final Supplier<Alarm> alarms;
    /** An alarm for each policy that the server lacked. */
    private final Map<String, Alarm> lacking = new ConcurrentHashMap<>();
    private final LongSupplier nanos;
    private volatile String cause;
    private volatile boolean isHeardOf;
    private volatile long at;

    ServerWatch(String address, Supplier<Alarm> alarms, LongSupplier nanos) {
        this.address = address;
        this.alarm = alarms.get();
        this.alarms = alarms;
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

    /** The server has no such policy for this program. */
    void lacks(String policy, String reason) {
        if (lacking.size() >= LACKING_MAX && !lacking.containsKey(policy)) {
            lacking.values().removeIf(each -> !each.isRecent());
            if (lacking.size() >= LACKING_MAX) {
                return;
            }
        }
        lacking.computeIfAbsent(policy, name -> alarms.get()).raise(policy,
            "the server at " + address + " has no policy `" + policy + "` for this program: " + reason + "; requests by it get no decision");
    }

    /** The server decided by a policy. */
    void decides(String policy) {
        Alarm lacked = lacking.get(policy);
        if (lacked != null) {
            lacked.clear("the server at " + address + " decides by policy `" + policy + "` again");
        }
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
