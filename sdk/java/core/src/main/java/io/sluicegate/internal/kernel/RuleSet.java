package io.sluicegate.internal.kernel;

import io.sluicegate.Carry;
import io.sluicegate.Quota;
import io.sluicegate.Verb;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/**
 * The rules that decide together, and their bytes as the script takes them. Its arrays must not be changed.
 *
 * @param carry the usage that these rules keep when they replace others
 * @param rules the rules, 1 to 8, in the policy's order
 * @param lifeMs the longest time that a state under these rules is needed; 0 if they are not those of a record
 * @param bytes what is between the length of the head and the head
 * @param generation the 6 bytes that identify these rules among those of the policy
 * @param generationHex the same in hex
 * @param quotas what each rule permits
 */
public record RuleSet(Carry carry, List<Rule> rules, long lifeMs, byte[] bytes, byte[] generation, String generationHex, List<Quota> quotas) {
    /** The version of the bytes. */
    public static final int FORMAT = 2;
    /** Rules of one set; the script takes no more. */
    public static final int RULES_MAX = 8;
    /** The time that one decision may cost Redis, since every key waits for every other. */
    public static final long COST_MAX_NS = 300_000;

    /** Rules have a format, a carry or an algorithm of a later version. */
    public static final class LaterException extends IllegalArgumentException {
        private static final long serialVersionUID = 1;

        LaterException(String message) {
            super(message);
        }
    }

    /** Puts rules together, 1 to 8. */
    public RuleSet(Carry carry, List<Rule> rules) {
        this(carry, rules, 0, pack(carry, rules));
    }

    private RuleSet(Carry carry, List<Rule> rules, long lifeMs, byte[] bytes) {
        this(carry, rules, lifeMs, bytes, Arrays.copyOf(Rule.sha256(bytes), 6));
    }

    private RuleSet(Carry carry, List<Rule> rules, long lifeMs, byte[] bytes, byte[] generation) {
        this(carry, List.copyOf(rules), lifeMs, bytes, generation, HexFormat.of().formatHex(generation),
            rules.stream().map(rule -> new Quota(rule.name(), rule.limit(), rule.windowUs(), rule.handsOutPermits())).toList());
    }

    private static byte[] pack(Carry carry, List<Rule> rules) {
        if (rules.isEmpty() || rules.size() > RULES_MAX) {
            throw new IllegalArgumentException("a set has 1 to 8 rules");
        }
        int size = 3 + rules.stream().mapToInt(rule -> 11 + 8 * rule.numbers().length).sum();
        ByteBuffer out = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        out.put((byte) FORMAT).put((byte) carry.ordinal()).put((byte) rules.size());
        for (Rule rule : rules) {
            out.put((byte) rule.code()).put((byte) rule.numbers().length).put((byte) rule.flags()).put(rule.nameHash());
            for (double number : rule.numbers()) {
                out.putDouble(number);
            }
        }
        return out.array();
    }

    /**
     * {@return the set of these bytes; its rules have no names, windows and calendars}
     *
     * @throws LaterException if they are of a later version
     * @throws IllegalArgumentException if they are damaged
     */
    public static RuleSet read(byte[] bytes) {
        try {
            ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            int format = in.get();
            int carry = in.get();
            int count = in.get();
            if (format != FORMAT || carry < 0 || carry > 2) {
                throw new LaterException("rules of format " + format + " with carry " + carry + " are of a later version");
            }
            List<Rule> rules = new ArrayList<>();
            for (int place = 0; place < count; place++) {
                int code = in.get();
                double[] numbers = new double[in.get() & 0xff];
                int flags = in.get();
                byte[] name = new byte[8];
                in.get(name);
                for (int i = 0; i < numbers.length; i++) {
                    numbers[i] = in.getDouble();
                }
                rules.add(Rule.read(name, code, flags, numbers));
            }
            if (in.hasRemaining()) {
                throw new IllegalArgumentException("bytes after the rules");
            }
            return new RuleSet(Carry.values()[carry], rules);
        } catch (java.nio.BufferUnderflowException e) {
            throw new IllegalArgumentException("rules are cut off", e);
        }
    }

    /** {@return these rules with what their record contains of each, and the time that a state under them is needed} */
    public RuleSet described(List<Description> each, long lifeMs) {
        if (each.size() != rules.size()) {
            throw new IllegalArgumentException(rules.size() + " rules have " + each.size() + " descriptions");
        }
        List<Rule> described = new ArrayList<>();
        for (int place = 0; place < rules.size(); place++) {
            Description description = each.get(place);
            Rule rule = rules.get(place);
            if (!Arrays.equals(Rule.hashOf(description.name), rule.nameHash()) || !rule.isOf(description.calendar)) {
                throw new IllegalArgumentException("the description of rule " + place + " is another's");
            }
            described.add(rule.described(description.name, description.limit, description.windowUs, description.calendar));
        }
        return new RuleSet(carry, described, lifeMs, bytes);
    }

    /**
     * The members of a policy's record about a rule beside its bytes.
     *
     * @param name its name
     * @param limit the limit that answers report
     * @param windowUs the time that header fields report, or 0
     * @param calendar its calendar, or null
     */
    public record Description(String name, long limit, long windowUs, Calendar calendar) {}

    /** {@return whether these rules support the verb} */
    public boolean supports(Verb verb) {
        return handsOutPermits() ? verb.compareTo(Verb.PEEK) >= 0 : !verb.namesPermit();
    }

    /** {@return whether one of the rules hands out permits} */
    public boolean handsOutPermits() {
        return rules.stream().anyMatch(Rule::handsOutPermits);
    }

    /** {@return whether the window of one of the rules comes with the request} */
    public boolean hasCalendars() {
        return rules.stream().anyMatch(Rule::hasCalendar);
    }

    /** {@return the windows around {@code now}, one for each rule; null for a rule without a calendar} */
    public long[][] windowsAround(long now) {
        long[][] windows = new long[rules.size()][];
        for (int place = 0; place < windows.length; place++) {
            Calendar calendar = rules.get(place).calendar();
            windows[place] = calendar == null ? null : calendar.windowAround(now);
        }
        return windows;
    }

    /** {@return whether requests can wait for a permit: each rule that hands out permits has a queue} */
    public boolean hasQueue() {
        return rules.stream().anyMatch(Rule::handsOutPermits)
            && rules.stream().filter(Rule::handsOutPermits).allMatch(Rule::hasQueue);
    }

    /** {@return the place of the rule called like {@code other}, or -1} */
    public int placeOf(Rule other) {
        for (int place = 0; place < rules.size(); place++) {
            if (Arrays.equals(rules.get(place).nameHash(), other.nameHash())) {
                return place;
            }
        }
        return -1;
    }

    /**
     * {@return whether permits of each of the old rules, by its place, are as many permits of these} The names are the same in the same
     * order, and so are the rules, or their usage stays as it is.
     */
    public boolean countsLike(RuleSet old) {
        boolean namesTheSame = Arrays.equals(names(), old.names(), Arrays::compare);
        return namesTheSame && (carry == Carry.USAGE || equals(old));
    }

    private byte[][] names() {
        return rules.stream().map(Rule::nameHash).toArray(byte[][]::new);
    }

    /** {@return whether one decision may take Redis longer than it is given} */
    public boolean costsTooMuch() {
        return 10_000 + rules.stream().mapToLong(Rule::costNs).sum() > COST_MAX_NS;
    }

    @Override
    public boolean equals(Object other) {
        return this == other || other instanceof RuleSet set && Arrays.equals(bytes, set.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }
}
