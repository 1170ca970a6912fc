package io.sluicegate.internal.engine;

import io.sluicegate.internal.kernel.Answer;

/** What a question to Redis comes to. */
sealed interface Result {
    /** The answer does not report this rule. */
    long NOT_SAID = -1;

    /**
     * Redis decided.
     *
     * @param answer the decision; its rule is a place in the program's own rules
     * @param inUse the permits in use of each of the program's own rules, {@link #NOT_SAID} for those that the answer does not report;
     *     empty if the answer alone says it, of its rule
     * @param charged of a bill, how much of each rule was charged; else empty
     */
    record Decided(Answer answer, long[] inUse, long[] charged) implements Result {
        /** {@return the permits in use of the own rule at {@code place}, or {@link #NOT_SAID}} */
        long inUse(int place) {
            if (inUse.length > 0) {
                return inUse[place];
            }
            return place == answer.rule() ? Math.max(answer.limit() - answer.remaining(), 0) : NOT_SAID;
        }
    }

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

    /**
     * What is stored at this key cannot be read or written.
     *
     * @param cause what Redis says
     */
    record ThisKey(String cause) implements Result {}

    /** The rules do not know the verb. */
    record Unsupported() implements Result {}

    /** Whether the request may have been executed. */
    default boolean perhapsCharged() {
        return this instanceof NoAnswer silent && silent.perhapsCharged || this instanceof Shed shed && shed.perhapsCharged;
    }
}
