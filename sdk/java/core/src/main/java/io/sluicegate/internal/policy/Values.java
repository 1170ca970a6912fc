package io.sluicegate.internal.policy;

import io.sluicegate.internal.kernel.Rules.Rate;
import java.util.Map;

/** The texts of a document that stand for numbers. */
public final class Values {
    /** The longest duration and period, in µs. */
    public static final long DURATION_MAX_US = 366 * 86_400_000_000L;
    /** The most permits of a rate, a burst and a limit. */
    public static final long PERMITS_MAX = 1L << 32;

    private static final Map<String, Long> UNITS_US = Map.ofEntries(
        Map.entry("us", 1L), Map.entry("ms", 1_000L),
        Map.entry("s", 1_000_000L), Map.entry("sec", 1_000_000L), Map.entry("second", 1_000_000L),
        Map.entry("m", 60_000_000L), Map.entry("min", 60_000_000L), Map.entry("minute", 60_000_000L),
        Map.entry("h", 3_600_000_000L), Map.entry("hour", 3_600_000_000L),
        Map.entry("d", 86_400_000_000L), Map.entry("day", 86_400_000_000L));
    private static final Map<String, Long> BYTES = Map.of(
        "", 1L, "B", 1L, "kB", 1_000L, "KiB", 1_024L, "MB", 1_000_000L, "MiB", 1L << 20, "GB", 1_000_000_000L, "GiB", 1L << 30);

    private Values() {}

    /** {@return whether this is the name of a policy, a rule, an app or a tag} */
    public static boolean isName(String text) {
        return !text.isEmpty() && text.length() <= 128
            && text.chars().allMatch(c -> c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-');
    }

    static boolean isToken(String text) {
        return !text.isEmpty() && text.length() <= 128 && text.chars().allMatch(c -> c >= 'a' && c <= 'z'
            || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || "!#$%&'*+-.^_`|~".indexOf(c) >= 0);
    }

    /** {@return whether this is a host of a match: a name in small letters, or "*." and a name} */
    static boolean isHost(String text) {
        String name = text.startsWith("*.") ? text.substring(2) : text;
        boolean letters = name.chars().allMatch(c -> c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || ".-_".indexOf(c) >= 0);
        return text.length() <= 253 && letters && !("." + name + ".").contains("..");
    }

    /** {@return the number of these digits, or -1 if they are none, begin with a needless 0, or are too many} */
    static long digits(String text) {
        boolean digits = !text.isEmpty() && text.length() <= 18 && text.chars().allMatch(c -> c >= '0' && c <= '9');
        return digits && (text.length() == 1 || text.charAt(0) != '0') ? Long.parseLong(text) : -1;
    }

    private static int afterDigits(String text) {
        int end = 0;
        while (end < text.length() && text.charAt(end) >= '0' && text.charAt(end) <= '9') {
            end++;
        }
        return end;
    }

    /** {@return the product, or -1 where there is none from 1 to {@code most}} */
    private static long within(long count, Long unit, long most) {
        if (count < 0 || unit == null || count > most / unit) {
            return -1;
        }
        return count * unit < 1 ? -1 : count * unit;
    }

    /** {@return the µs of a duration, or -1 if the text is none} */
    static long duration(String text) {
        int end = afterDigits(text);
        return within(digits(text.substring(0, end)), UNITS_US.get(text.substring(end)), DURATION_MAX_US);
    }

    /** {@return the rate, or null if the text is none} */
    static Rate rate(String text) {
        int slash = text.indexOf('/');
        if (slash < 0) {
            return null;
        }
        int end = Math.min(afterDigits(text), slash);
        long permits = within(digits(text.substring(0, end)), BYTES.get(text.substring(end, slash)), PERMITS_MAX);
        String per = text.substring(slash + 1);
        boolean counted = afterDigits(per) > 0;
        long periodUs = duration(counted ? per : "1" + per);
        return permits < 0 || periodUs < 0 ? null : new Rate(permits, periodUs);
    }
}
