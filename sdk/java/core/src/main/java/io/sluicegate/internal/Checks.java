package io.sluicegate.internal;

import io.sluicegate.ErrorCode;
import io.sluicegate.internal.kernel.Numbers;
import java.math.BigInteger;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Pattern;

/** The ranges of what programs give. */
public final class Checks {
    private static final long DEADLINE_MAX_MS = 10_000;
    private static final Pattern NAME = Pattern.compile("[a-z0-9._-]{1,128}");

    private Checks() {}

    /** {@return the bytes of a text in UTF-8, which has none for half of a surrogate pair} */
    private static int bytes(String text) {
        int bytes = 0;
        for (int place = 0; place < text.length(); place++) {
            char c = text.charAt(place);
            bytes += c < 0x80 ? 1 : c < 0x800 || Character.isSurrogate(c) ? 2 : 3;
            boolean pair = Character.isHighSurrogate(c) && place + 1 < text.length() && Character.isLowSurrogate(text.charAt(place + 1));
            if (pair) {
                place++;
                bytes += 2;
            } else if (Character.isSurrogate(c)) {
                throw ErrorCode.KEY_TEXT.with(Map.of());
            }
        }
        return bytes;
    }

    /** Checks a key; returns the key. */
    public static String key(String key) {
        int length = bytes(key);
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
        int length = bytes(Objects.requireNonNull(id, "id"));
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
        BigInteger us = count(Objects.requireNonNull(wait, "maxWait"), 1_000_000);
        if (us.signum() < 0 || us.compareTo(BigInteger.valueOf(Numbers.SPAN_MAX_US)) > 0) {
            throw ErrorCode.MAX_WAIT_RANGE.with(Map.of("value", us));
        }
        return us.longValue();
    }

    /** Checks the deadline of a decision; returns it. */
    public static Duration deadline(Duration deadline) {
        BigInteger ms = count(Objects.requireNonNull(deadline, "deadline"), 1_000);
        if (ms.signum() <= 0 || ms.compareTo(BigInteger.valueOf(DEADLINE_MAX_MS)) > 0) {
            throw ErrorCode.DEADLINE_RANGE.with(Map.of("value", ms));
        }
        return deadline;
    }

    // Of the longest durations a long does not hold the µs.
    private static BigInteger count(Duration time, int perSecond) {
        return BigInteger.valueOf(time.getSeconds()).multiply(BigInteger.valueOf(perSecond))
            .add(BigInteger.valueOf(time.getNano() / (1_000_000_000 / perSecond)));
    }

    /** {@return whether this is the name of a policy, a rule or an app} */
    public static boolean isName(String text) {
        return NAME.matcher(Objects.requireNonNull(text, "name")).matches();
    }

    /** Checks the name of an app; returns the name. */
    public static String app(String app) {
        if (!isName(Objects.requireNonNull(app, "app"))) {
            throw ErrorCode.APP_NAME.with(Map.of("value", app));
        }
        return app;
    }
}
