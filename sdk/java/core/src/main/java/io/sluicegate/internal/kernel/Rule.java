package io.sluicegate.internal.kernel;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;

/**
 * One limit: the numbers of its algorithm, and what answers report of it. Nobody changes its arrays.
 *
 * @param name the name that decisions report
 * @param nameHash the 8 bytes by which rules are compared by name
 * @param code the code of the algorithm
 * @param flags the sum of its flags
 * @param numbers of the algorithm
 * @param primitive the arithmetic without Redis
 * @param limit the largest cost that ever passes at once
 * @param windowUs the time that header fields report, in µs; 0 if they report none
 * @param calendar of its windows, or null
 */
public record Rule(String name, byte[] nameHash, int code, int flags, double[] numbers, Primitive primitive, long limit, long windowUs,
                   Calendar calendar) {
    /** A full budget is the same as a new key. */
    public static final int FULL_IS_FRESH = 1;
    /** The rule hands out permits by name. */
    public static final int PERMITS = 2;
    /** Its window comes with the request. */
    public static final int CALENDAR = 4;

    static Rule of(String name, int code, int flags, long windowUs, Calendar calendar, double... numbers) {
        return read(hashOf(name), code, flags, numbers).described(name, -1, windowUs, calendar);
    }

    /** {@return a rule of a set that was read} */
    public static Rule read(byte[] nameHash, int code, int flags, double[] numbers) {
        Primitive primitive = primitive(code, numbers);
        return new Rule("", nameHash, code, flags, numbers, primitive, primitive.limit(), 0, null);
    }

    /** {@return this rule with what its record contains} */
    Rule described(String name, long limit, long windowUs, Calendar calendar) {
        return new Rule(name, nameHash, code, flags, numbers, primitive, limit < 0 ? this.limit : limit, windowUs, calendar);
    }

    private static Primitive primitive(int code, double[] n) {
        if (code < 1 || code > 9) {
            throw new RuleSet.LaterException("algorithm " + code + " is of a later version");
        }
        int size = new int[] {9, 3, 5, 10, 5, 4, 4, 2, 3}[code - 1];
        boolean wrong = n.length != size || !Arrays.stream(n).allMatch(number -> number >= 0 && number <= Numbers.LARGEST)
            || code == 3 && (n[0] <= 0 || n[1] <= 0 || n[2] <= 0) || code == 5 && (n[1] > 2 || n[3] > 3);
        if (wrong) {
            throw new IllegalArgumentException("a rule of algorithm " + code + " has other numbers");
        }
        return code <= 4 ? new Level(code, n) : code <= 8 ? new Window(code, n) : new Concurrency(n);
    }

    /** {@return whether a record may describe this rule with this calendar, or null} */
    boolean isOf(Calendar calendar) {
        return hasCalendar() ? calendar != null && calendar.unit().ordinal() == numbers[3] : calendar == null;
    }

    /** {@return the 8 bytes by which rules are compared by name} */
    public static byte[] hashOf(String name) {
        return Arrays.copyOf(sha256(name.getBytes(StandardCharsets.UTF_8)), 8);
    }

    /** {@return the SHA-256 of {@code bytes}} */
    public static byte[] sha256(byte[] bytes) {
        return digest("SHA-256", bytes);
    }

    /** {@return a hash of {@code bytes}, by an algorithm that every Java has} */
    public static byte[] digest(String algorithm, byte[] bytes) {
        try {
            return MessageDigest.getInstance(algorithm).digest(bytes);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-1 and SHA-256", e);
        }
    }

    /** {@return whether a full budget is the same as a new key} */
    boolean fullIsFresh() {
        return (flags & FULL_IS_FRESH) != 0;
    }

    /** {@return whether it hands out permits} */
    public boolean handsOutPermits() {
        return (flags & PERMITS) != 0;
    }

    /** {@return whether requests can wait for its permits} */
    boolean hasQueue() {
        return handsOutPermits() && numbers[2] > 0;
    }

    /** {@return whether its window comes with the request} */
    public boolean hasCalendar() {
        return (flags & CALENDAR) != 0;
    }

    /** {@return whether it keeps a level of units, as buckets do} */
    public boolean isBucket() {
        return code == 1 || code == 4;
    }

    /** {@return whether its windows end all at once} */
    public boolean isFixedWindow() {
        return code == 5;
    }

    /** {@return whether any cost passes, as with Guava's two} */
    public boolean takesAnyCost() {
        return code == 2 || code == 3;
    }

    /**
     * {@return whether what Redis reports as left of it is what a share has in use: not of permits that are held under their
     * ids, nor of a rule that warms up, of which only the time between two requests is left}
     */
    public boolean isReported() {
        return !handsOutPermits() && code != 3;
    }

    /** The time that one decision may cost Redis, in ns. */
    long costNs() {
        double entries = switch (code) {
            case 6 -> 285 * numbers[3];
            case 8 -> 114 * numbers[0];
            case 9 -> 285 * numbers[0];
            default -> 0;
        };
        return 5_000 + (long) entries;
    }
}
