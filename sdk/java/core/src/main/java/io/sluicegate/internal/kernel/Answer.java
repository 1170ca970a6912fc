package io.sluicegate.internal.kernel;

/**
 * A decision of the model.
 *
 * @param allowed whether it passes
 * @param granted permits granted or given back
 * @param waitUs how long an allowed request is held back
 * @param limit of the rule that decided
 * @param remaining permits left under that rule
 * @param retryAfterUs 0 if allowed, {@link Numbers#NEVER} if it never passes
 * @param resetAfterUs until that rule's budget is full
 * @param rule the place of the rule that decided
 */
public record Answer(boolean allowed, long granted, long waitUs, long limit, long remaining, long retryAfterUs,
                     long resetAfterUs, int rule) {
    /** {@return the refusal of a request of which nothing is known} */
    public static Answer refused(RuleSet rules, long retryAfterUs) {
        return new Answer(false, 0, 0, rules.rules().get(0).limit(), 0, retryAfterUs, 0, 0);
    }

    /** {@return the same answer by another rule, with another wait} */
    public Answer by(int rule, long waitUs) {
        return new Answer(allowed, granted, waitUs, limit, remaining, retryAfterUs, resetAfterUs, rule);
    }
}
