package io.sluicegate.internal.redis;

import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Verb;
import java.util.Arrays;

/** What the script says about one key. */
public sealed interface Reply {
    /** Bytes of a decision by one rule. */
    int DECISION_LENGTH = 27;
    /** Bytes of what remains of a rule. */
    int REMAINING_LENGTH = 7;
    /** Bytes of what a rule was charged of a debt. */
    int CHARGED_LENGTH = 4;
    /** The usage in a reply that reports none. */
    long[] NONE = {};

    /**
     * It was decided.
     *
     * @param answer the decision
     * @param inUse of two rules and more, the permits in use of each; of one rule empty, as the answer itself reports it
     * @param charged of a debt, what each rule was charged; else empty
     */
    record Decided(Answer answer, long[] inUse, long[] charged) implements Reply {}

    /** The rules do not know the verb. */
    record Unsupported() implements Reply {}

    /**
     * Other rules wrote the state.
     *
     * @param state how it begins
     */
    record OtherRules(byte[] state) implements Reply {}

    /**
     * What was sent or what is stored cannot be read.
     *
     * @param part `rules`, `ask` or `state`, or `reply` for a string that is none of the script's
     */
    record Malformed(String part) implements Reply {}

    /** {@return the reply of these bytes, to a verb under these rules, with or without a debt} */
    static Reply read(byte[] bytes, RuleSet rules, Verb verb, boolean withDebt) {
        int count = rules.rules().size();
        int remaining = DECISION_LENGTH + (count > 1 ? REMAINING_LENGTH * count : 0);
        int length = remaining + (withDebt ? CHARGED_LENGTH * count : 0);
        if (bytes.length == length && (bytes[0] == 0 || bytes[0] == 1) && (bytes[1] & 0xff) < count) {
            return new Decided(answer(bytes, rules), count > 1 ? inUse(bytes, rules) : NONE, withDebt ? charged(bytes, remaining, count) : NONE);
        }
        if (bytes.length == 1 && bytes[0] == 2 && !verb.isSupportedBy(rules)) {
            return new Unsupported();
        }
        if (bytes.length > 1 && bytes[0] == 3) {
            return new OtherRules(Arrays.copyOfRange(bytes, 1, bytes.length));
        }
        if (bytes.length > 0 && bytes[0] == 4) {
            return new Malformed(new String(bytes, 1, bytes.length - 1, java.nio.charset.StandardCharsets.US_ASCII));
        }
        return new Malformed("reply");
    }

    private static Answer answer(byte[] bytes, RuleSet rules) {
        boolean allowed = bytes[0] == 1;
        int rule = bytes[1];
        long time = integer(bytes, 6, 7);
        long retry = time == (1L << 56) - 1 ? Numbers.NEVER : time;
        return new Answer(allowed, integer(bytes, 2, 4), allowed ? time : 0, rules.rules().get(rule).limit(),
            integer(bytes, 13, 7), allowed ? 0 : retry, integer(bytes, 20, 7), rule);
    }

    private static long[] inUse(byte[] bytes, RuleSet rules) {
        long[] inUse = new long[rules.rules().size()];
        for (int place = 0; place < inUse.length; place++) {
            long left = integer(bytes, DECISION_LENGTH + REMAINING_LENGTH * place, REMAINING_LENGTH);
            inUse[place] = Math.max(rules.rules().get(place).limit() - left, 0);
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

    private static long integer(byte[] bytes, int pos, int length) {
        long value = 0;
        for (int i = length - 1; i >= 0; i--) {
            value = value << 8 | bytes[pos + i] & 0xff;
        }
        return value;
    }
}
