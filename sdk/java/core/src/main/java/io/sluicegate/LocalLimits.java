package io.sluicegate;

/** A gate that takes limits made in code: {@link DirectGate}, and those in memory for tests. A server takes none. */
public interface LocalLimits extends Gate {
    /**
     * A limit of the program's own. All programs on one Redis that name a limit alike share its budgets, in any language. It has nothing
     * to do with a policy of that name. Where programs have different limits, each decides by its own: what is in use is
     * taken over each time.
     *
     * @param name its name, as that of a policy
     * @param limit the limit
     * @return the limiter
     * @throws SluicegateException with {@link ErrorCode#RULES} if the limit or its name is not valid
     */
    Limiter limit(String name, Limit limit);
}
