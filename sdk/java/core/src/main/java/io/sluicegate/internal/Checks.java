package io.sluicegate.internal;

import io.sluicegate.ErrorCode;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.policy.Values;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;

/** The ranges of what programs give. */
public final class Checks {
    private Checks() {}

    /** Checks a key; null is the shared budget; returns the key. */
    public static String key(String key) {
        if (key == null) {
            return null;
        }
        int length = key.getBytes(StandardCharsets.UTF_8).length;
        if (length == 0) {
            throw ErrorCode.KEY_EMPTY.with(Map.of());
        }
        if (length > 1024) {
            throw ErrorCode.KEY_LENGTH.with(Map.of("value", length));
        }
        return key;
    }

    /** Checks the name of a permit; returns the name. */
    public static String id(String id) {
        int length = id.getBytes(StandardCharsets.UTF_8).length;
        if (length < 1 || length > 1024) {
            throw ErrorCode.ID_LENGTH.with(Map.of("value", length));
        }
        return id;
    }

    /** Checks a cost; returns the cost. */
    public static long cost(long cost) {
        if (cost < 1 || cost > Numbers.COST_MAX) {
            throw ErrorCode.COST_RANGE.with(Map.of("value", cost));
        }
        return cost;
    }

    /** Checks a wait; returns the wait in µs. */
    public static long maxWaitUs(Duration wait) {
        long us = Math.addExact(Math.multiplyExact(wait.getSeconds(), 1_000_000L), wait.getNano() / 1000);
        if (us < 0 || us > Numbers.SPAN_MAX_US) {
            throw ErrorCode.MAX_WAIT_RANGE.with(Map.of("value", us));
        }
        return us;
    }

    /** Checks the name of an app; returns the name. */
    public static String app(String app) {
        if (!Values.isName(app)) {
            throw ErrorCode.APP_NAME.with(Map.of("value", app));
        }
        return app;
    }
}
