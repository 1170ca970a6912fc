package io.sluicegate.internal.engine;

import io.sluicegate.internal.kernel.Answer;

/** What a question to Redis comes to. */
sealed interface Result {
    /**
     * Redis decided.
     *
     * @param answer the decision; its rule is a place in the program's own rules
     * @param charged of a bill, how much of each rule was charged; else empty
     */
    record Decided(Answer answer, long[] charged) implements Result {}

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
