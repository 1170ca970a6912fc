package io.sluicegate.internal.kernel;

import io.sluicegate.Limit.Every;
import java.time.DayOfWeek;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneId;
import java.time.temporal.ChronoUnit;
import java.time.temporal.TemporalAdjusters;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * The windows of a calendar.
 *
 * @param unit how long a window is; its ordinal is the number in the rules
 * @param zone whose midnight begins it
 * @param zoneName the zone's name as the policy has it
 */
public record Calendar(Every unit, ZoneId zone, String zoneName) {
    /** The names of the IANA database, without regard to case. */
    private static final Map<String, ZoneId> ZONES = zones();

    private static Map<String, ZoneId> zones() {
        Map<String, ZoneId> zones = new TreeMap<>();
        for (String name : ZoneId.getAvailableZoneIds()) {
            // Names of the JDK alone.
            if (!name.startsWith("SystemV/")) {
                zones.put(name.toLowerCase(Locale.ROOT), ZoneId.of(name));
            }
        }
        // Names of the database that the JDK leaves out.
        zones.putIfAbsent("est", ZoneId.of("America/Panama"));
        zones.putIfAbsent("mst", ZoneId.of("America/Phoenix"));
        zones.putIfAbsent("hst", ZoneId.of("Pacific/Honolulu"));
        zones.putIfAbsent("roc", ZoneId.of("Asia/Taipei"));
        return zones;
    }

    /** {@return the zone of this name, or null} */
    public static ZoneId zoneOf(String name) {
        return name.chars().allMatch(c -> c < 128) ? ZONES.get(name.toLowerCase(Locale.ROOT)) : null;
    }

    /** {@return the window around an instant: its first instant and the first after it, in µs since 1970} */
    public long[] windowAround(long nowUs) {
        Instant now = Instant.EPOCH.plus(nowUs, ChronoUnit.MICROS);
        LocalDate first = firstDay(now.atZone(zone).toLocalDate());
        // Where clocks turn back across midnight the old date comes again: a window that has ended stays ended.
        while (!now.isBefore(start(next(first)))) {
            first = next(first);
        }
        long from = ChronoUnit.MICROS.between(Instant.EPOCH, start(first));
        return new long[] {Math.max(from, 0), ChronoUnit.MICROS.between(Instant.EPOCH, start(next(first)))};
    }

    private LocalDate firstDay(LocalDate day) {
        return switch (unit) {
            case DAY -> day;
            case WEEK -> day.with(TemporalAdjusters.previousOrSame(DayOfWeek.MONDAY));
            case MONTH -> day.withDayOfMonth(1);
            case YEAR -> day.withDayOfYear(1);
        };
    }

    private LocalDate next(LocalDate first) {
        return switch (unit) {
            case DAY -> first.plusDays(1);
            case WEEK -> first.plusWeeks(1);
            case MONTH -> first.plusMonths(1);
            case YEAR -> first.plusYears(1);
        };
    }

    // Where clocks skip midnight, java.time gives the first instant after the gap; of two midnights the earlier.
    private Instant start(LocalDate day) {
        return day.atStartOfDay(zone).toInstant();
    }
}
