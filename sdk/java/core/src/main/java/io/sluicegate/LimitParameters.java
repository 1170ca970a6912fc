package io.sluicegate;

import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Rules.Rate;
import java.time.Duration;
import java.time.ZoneId;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;

/** The parameters of one rule of a limit, each of which is checked as it is taken. */
final class LimitParameters {
    static final long PERMITS_MAX = 1L << 32;
    private static final Duration SPAN_MIN = Duration.of(1, ChronoUnit.MICROS);
    private static final Duration SPAN_MAX = Duration.ofDays(366);
    private static final double FACTOR_MAX = 1000;

    private final String path;
    private final Map<String, Object> left;

    LimitParameters(String path, Map<String, Object> parameters) {
        this.path = path;
        this.left = new LinkedHashMap<>(parameters);
    }

    static SluicegateException error(String path, String problem) {
        return ErrorCode.RULES.with(Map.of("cause", path + ": " + problem));
    }

    private SluicegateException outside(String name, Object value, String range) {
        return error(path + "." + name, "`" + value + "` is outside " + range);
    }

    /** Takes a parameter of this value; returns whether it was given. */
    boolean takes(String name, String value) {
        return left.remove(name, value);
    }

    boolean has(String name) {
        return left.containsKey(name);
    }

    /** Takes a number; without a default it was given. */
    long whole(String name, long least, long most, long... otherwise) {
        long value = has(name) ? (Long) left.remove(name) : otherwise[0];
        if (value < least || value > most) {
            throw outside(name, value, least + "..=" + most);
        }
        return value;
    }

    /** Takes a time in µs; without a default it was given. */
    long span(String name, Duration... otherwise) {
        Duration span = has(name) ? (Duration) left.remove(name) : otherwise[0];
        if (span.compareTo(SPAN_MIN) < 0 || span.compareTo(SPAN_MAX) > 0) {
            throw outside(name, span, "1us..=366d");
        }
        return span.getSeconds() * 1_000_000 + span.getNano() / 1000;
    }

    Rate rate() {
        return new Rate(whole("permits", 1, PERMITS_MAX), span("period"));
    }

    /** Takes a factor above 1. */
    double factor(String name, double otherwise) {
        double factor = has(name) ? (Double) left.remove(name) : otherwise;
        if (!(factor > 1 && factor <= FACTOR_MAX)) {
            throw error(path + "." + name, "`" + factor + "` is not above 1 and at most 1000");
        }
        return factor;
    }

    /** Takes the time of a window, which is at least a µs for each of its buckets. */
    long spanOf(String name, long buckets) {
        long us = span(name);
        if (us < buckets) {
            throw error(path + "." + name, "`" + us + "us` is shorter than a µs for each of " + buckets + " buckets");
        }
        return us;
    }

    Calendar calendar() {
        Limit.Every every = (Limit.Every) left.remove("calendar");
        String id = ((ZoneId) left.remove("time_zone")).getId();
        String zone = id.equals("Z") ? "UTC" : id;
        if (Calendar.zoneOf(zone) == null) {
            throw error(path + ".time_zone", "unknown time zone `" + zone + "`");
        }
        return new Calendar(every, Calendar.zoneOf(zone), zone);
    }

    /** Rejects parameters that were not taken, as the algorithm does not have them. */
    void done() {
        for (String name : left.keySet()) {
            throw error(path + "." + name, "unknown field");
        }
    }
}
