package io.sluicegate.internal.redis;

import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.RuleSet;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The result of a request to Redis: the answer of the script about one key, or the reason why there is none. */
public sealed interface Result {
    /** Bytes of a decision by one rule. */
    int DECISION_LENGTH = 27;
    /** Where a decision has what is left of the rule that decided. */
    int LEFT_AT = 13;
    /** Bytes of what is left of a rule. */
    int LEFT_LENGTH = 7;
    /** Bytes of what a rule was charged of a debt. */
    int CHARGED_LENGTH = 4;
    /** Bytes of a request that waits for a permit. */
    int CALLED_LENGTH = 24;
    /** The permits charged in a reply to a request without a debt. */
    long[] NONE = {};
    /** The answer does not report this rule. */
    long NOT_REPORTED = -1;

    /**
     * Redis decided.
     *
     * @param answer the decision; in the end its rule is a place in the program's own rules
     * @param inUse the permits in use of each rule, which may be more than its limit; {@link #NOT_REPORTED} for those that the answer does
     *     not report
     * @param charged of a debt, what each rule was charged; else empty
     */
    record Decided(Answer answer, long[] inUse, long[] charged) implements Result {}

    /** The rules do not support the verb. */
    record Unsupported() implements Result {}

    /**
     * Other rules wrote the state; the request goes on.
     *
     * @param state how it begins
     */
    record OtherRules(byte[] state) implements Result {}

    /**
     * A key whose value cannot be read or written.
     *
     * @param cause the error of Redis
     */
    record ThisKey(String cause) implements Result {}

    /**
     * Redis did not answer.
     *
     * @param cause what happened
     * @param perhapsCharged whether it may have executed the request
     */
    record NoAnswer(String cause, boolean perhapsCharged) implements Result {}

    /**
     * Redis answers, but did not decide in time.
     *
     * @param cause what happened
     * @param perhapsCharged whether it may have executed the request
     */
    record Shed(String cause, boolean perhapsCharged) implements Result {}

    /** {@return whether the request may have been executed} */
    default boolean perhapsCharged() {
        return this instanceof NoAnswer silent && silent.perhapsCharged || this instanceof Shed shed && shed.perhapsCharged;
    }

    /** {@return the reply of these bytes, to a verb under these rules, with or without a debt} */
    static Result read(byte[] bytes, RuleSet rules, Verb verb, boolean withDebt) {
        int count = rules.rules().size();
        int decided = DECISION_LENGTH + (count > 1 ? LEFT_LENGTH * count : 0);
        int length = decided + (withDebt ? CHARGED_LENGTH * count : 0);
        // Behind it may be requests that wait for a permit in servers, which see to them themselves.
        int called = bytes.length - length;
        if (called >= 0 && called % CALLED_LENGTH == 0 && (bytes[0] == 0 || bytes[0] == 1) && (bytes[1] & 0xff) < count) {
            return new Decided(answer(bytes, rules), inUse(bytes, rules), withDebt ? charged(bytes, decided, count) : NONE);
        }
        if (bytes.length == 1 && bytes[0] == 2 && !rules.supports(verb)) {
            return new Unsupported();
        }
        if (bytes.length > 1 && bytes[0] == 3) {
            return new OtherRules(Arrays.copyOfRange(bytes, 1, bytes.length));
        }
        boolean names = bytes.length > 0 && bytes[0] == 4;
        return new ThisKey("malformed " + (names ? new String(bytes, 1, bytes.length - 1, StandardCharsets.US_ASCII) : "reply"));
    }

    private static Answer answer(byte[] bytes, RuleSet rules) {
        boolean allowed = bytes[0] == 1;
        int rule = bytes[1];
        long time = integer(bytes, 6, 7);
        long retry = time == (1L << 56) - 1 ? Numbers.NEVER : time;
        return new Answer(allowed, integer(bytes, 2, 4), allowed ? time : 0, rules.rules().get(rule).limit(),
            Math.max(left(bytes, LEFT_AT), 0), allowed ? 0 : retry, integer(bytes, 20, 7), rule);
    }

    private static long[] inUse(byte[] bytes, RuleSet rules) {
        long[] inUse = new long[rules.rules().size()];
        for (int place = 0; place < inUse.length; place++) {
            int pos = inUse.length == 1 ? LEFT_AT : DECISION_LENGTH + LEFT_LENGTH * place;
            inUse[place] = Math.max(rules.rules().get(place).limit() - left(bytes, pos), 0);
        }
        return inUse;
    }

    private static long[] charged(byte[] bytes, int from, int count) {
        long[] charged = new long[count];
        for (int place = 0; place < count; place++) {
            charged[place] = integer(bytes, from + CHARGED_LENGTH * place, CHARGED_LENGTH);
        }
        return charged;
    }

    // A two's complement number: below 0 if more than the limit is in use.
    private static long left(byte[] bytes, int pos) {
        int above = Long.SIZE - Byte.SIZE * LEFT_LENGTH;
        return integer(bytes, pos, LEFT_LENGTH) << above >> above;
    }

    private static long integer(byte[] bytes, int pos, int length) {
        long value = 0;
        for (int i = length - 1; i >= 0; i--) {
            value = value << 8 | bytes[pos + i] & 0xff;
        }
        return value;
    }
}
