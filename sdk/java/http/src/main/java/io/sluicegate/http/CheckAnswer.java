package io.sluicegate.http;

import io.sluicegate.Decision;
import io.sluicegate.SluicegateException;

/**
 * The answer to one of several checks.
 *
 * @param decision what was decided, without quotas; null if nothing was
 * @param problem why nothing was decided; null if something was
 */
public record CheckAnswer(Decision decision, SluicegateException problem) {
    /**
     * The decision, a refusal too.
     *
     * @return the decision
     * @throws SluicegateException if there is none
     */
    public Decision orThrow() {
        if (problem != null) {
            throw problem;
        }
        return decision;
    }
}
