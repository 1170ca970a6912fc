package io.sluicegate;

/** A refusal, for programs that prefer an exception. */
public class RateLimitExceededException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The refusal. */
    private final transient Decision decision;

    /**
     * Makes the exception of a refusal.
     *
     * @param decision the refusal
     */
    public RateLimitExceededException(Decision decision) {
        super("policy `" + decision.policy() + "`: rule `" + decision.rule() + "` refuses");
        this.decision = decision;
    }

    /** {@return the refusal} */
    public Decision decision() {
        return decision;
    }
}
