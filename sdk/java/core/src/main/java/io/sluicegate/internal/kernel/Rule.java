package io.sluicegate.internal.kernel;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;

/** One limit: the numbers of its algorithm, and what answers say of it. */
public final class Rule {
    /** A full budget is the same as a new key. */
    public static final int FULL_IS_FRESH = 1;
    /** It hands out permits by name. */
    public static final int PERMITS = 2;
    /** Its window comes with the request. */
    public static final int CALENDAR = 4;

    private final String name;
    private final byte[] nameHash;
    private final int code;
    private final int flags;
    private final double[] numbers;
    private final Primitive primitive;
    private final long limit;
    private final long windowUs;
    private final Calendar calendar;

    private Rule(String name, byte[] nameHash, int code, int flags, double[] numbers, long limit, long windowUs,
                 Calendar calendar) {
        this.name = name;
        this.nameHash = nameHash;
        this.code = code;
        this.flags = flags;
        this.numbers = numbers;
        this.primitive = primitive(code, numbers);
        this.limit = limit < 0 ? primitive.limit() : limit;
        this.windowUs = windowUs;
        this.calendar = calendar;
    }

    static Rule made(String name, int code, int flags, long windowUs, Calendar calendar, double... numbers) {
        return new Rule(name, hashOf(name), code, flags, numbers, -1, windowUs, calendar);
    }

    /** {@return a rule of a set that was read} */
    public static Rule read(byte[] nameHash, int code, int flags, double[] numbers) {
        return new Rule("", nameHash, code, flags, numbers, -1, 0, null);
    }

    /** {@return this rule with what its record contains} */
    Rule described(String name, long limit, long windowUs, Calendar calendar) {
        return new Rule(name, nameHash, code, flags, numbers, limit, windowUs, calendar);
    }

    private static Primitive primitive(int code, double[] n) {
        Primitive primitive = switch (code) {
            case 1 -> sized(n, 9) ? new Level(code, n) : null;
            case 2 -> sized(n, 3) ? new Level(code, n) : null;
            case 3 -> sized(n, 5) && n[0] > 0 && n[1] > 0 && n[2] > 0 ? new Level(code, n) : null;
            case 4 -> sized(n, 10) ? new Level(code, n) : null;
            case 5 -> sized(n, 5) && n[1] <= 2 && n[3] <= 3 ? new Window(code, n) : null;
            case 6, 7 -> sized(n, 4) ? new Window(code, n) : null;
            case 8 -> sized(n, 2) ? new Window(code, n) : null;
            case 9 -> sized(n, 3) ? new Concurrency(n) : null;
            default -> throw new RuleSet.LaterException("algorithm " + code + " is of a later version");
        };
        if (primitive == null) {
            throw new IllegalArgumentException("a rule of algorithm " + code + " has other numbers");
        }
        return primitive;
    }

    private static boolean sized(double[] numbers, int size) {
        if (numbers.length != size) {
            return false;
        }
        for (double number : numbers) {
            if (!(number >= 0 && number <= Numbers.LARGEST)) {
                return false;
            }
        }
        return true;
    }

    /** {@return the 8 bytes by which rules know their names} */
    public static byte[] hashOf(String name) {
        return Arrays.copyOf(sha256(name.getBytes(StandardCharsets.UTF_8)), 8);
    }

    /** {@return the SHA-256 of {@code bytes}} */
    public static byte[] sha256(byte[] bytes) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(bytes);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-256", e);
        }
    }

    /** {@return the name that decisions report} */
    public String name() {
        return name;
    }

    /** {@return the 8 bytes of the name's hash} */
    public byte[] nameHash() {
        return nameHash.clone();
    }

    boolean isCalledLike(Rule other) {
        return Arrays.equals(nameHash, other.nameHash);
    }

    boolean isAlike(Rule other) {
        return code == other.code;
    }

    boolean hasNumbersOf(Rule other) {
        return Arrays.equals(numbers, other.numbers);
    }

    /** {@return the code of the algorithm in the rules} */
    public int code() {
        return code;
    }

    /** {@return the sum of its flags} */
    public int flags() {
        return flags;
    }

    /** {@return a copy of the numbers of the algorithm} */
    public double[] numbers() {
        return numbers.clone();
    }

    /** {@return the largest cost that ever passes at once} */
    public long limit() {
        return limit;
    }

    /** {@return the time that header fields report, in µs; 0 if they report none} */
    public long windowUs() {
        return windowUs;
    }

    /** {@return the calendar of its windows, or null} */
    public Calendar calendar() {
        return calendar;
    }

    /** {@return whether a full budget is the same as a new key} */
    boolean fullIsFresh() {
        return (flags & FULL_IS_FRESH) != 0;
    }

    /** {@return whether it hands out permits} */
    public boolean handsOutPermits() {
        return (flags & PERMITS) != 0;
    }

    /** {@return whether its window comes with the request} */
    public boolean hasCalendar() {
        return (flags & CALENDAR) != 0;
    }

    /** {@return whether it keeps a level of units, as buckets do} */
    public boolean isBucket() {
        return code == 1 || code == 4;
    }

    /** {@return whether any cost passes, as with Guava's two} */
    public boolean takesAnyCost() {
        return code == 2 || code == 3;
    }

    /**
     * {@return whether what Redis says to be left of it says what a share has in use: not of permits that are held under their
     * ids, nor of a rule that warms up, of which only the time between two requests is left}
     */
    public boolean isReported() {
        return !handsOutPermits() && code != 3;
    }

    Primitive primitive() {
        return primitive;
    }

    /** What one decision may cost Redis, in ns. */
    long costNs() {
        double entries = switch (code) {
            case 6 -> 285 * (numbers[3] + 1);
            case 8 -> 114 * numbers[0];
            case 9 -> 285 * numbers[0];
            default -> 0;
        };
        return 5_000 + (long) entries;
    }
}
