package io.sluicegate.internal.kernel;

/**
 * What one rule says to a request.
 *
 * @param passes whether the rule agrees
 * @param us the wait if it agrees, else the time until a retry, or {@link Numbers#NEVER}
 */
record Outcome(boolean passes, long us) {
    static final Outcome NOW = new Outcome(true, 0);
    static final Outcome NEVER = new Outcome(false, Numbers.NEVER);

    static Outcome after(long waitUs) {
        return waitUs == 0 ? NOW : new Outcome(true, waitUs);
    }

    static Outcome retry(long us) {
        return new Outcome(false, us);
    }
}
