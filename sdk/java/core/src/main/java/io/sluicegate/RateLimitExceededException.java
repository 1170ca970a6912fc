package io.sluicegate;

/** A refusal, for programs that prefer an exception. */
public class RateLimitExceededException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The refusal. */
    private final transient Decision decision;
    /** An answer of its own; null: the usual one. */
    private final transient HttpAnswer answer;

    /**
     * Makes the exception of a refusal.
     *
     * @param decision the refusal
     */
    public RateLimitExceededException(Decision decision) {
        this(decision, null);
    }

    /**
     * Makes the exception of a refusal with an answer of its own.
     *
     * @param decision the refusal
     * @param answer the answer of an HTTP service; null: {@link HttpAnswer#of(Decision)}
     */
    public RateLimitExceededException(Decision decision, HttpAnswer answer) {
        super("policy `" + decision.policy() + "`: rule `" + decision.rule() + "` refuses");
        this.decision = decision;
        this.answer = answer;
    }

    /** {@return the refusal} */
    public Decision decision() {
        return decision;
    }

    /** {@return the answer of an HTTP service: its own, or {@link HttpAnswer#of(Decision)}} */
    public HttpAnswer answer() {
        return answer == null ? HttpAnswer.of(decision) : answer;
    }
}
