package io.sluicegate;

/** An attempt to hold a permit. */
public final class Acquisition {
    private final Limiter limiter;
    private final String key;
    private final String id;
    private final Decision decision;

    Acquisition(Limiter limiter, String key, String id, Decision decision) {
        this.limiter = limiter;
        this.key = key;
        this.id = id;
        this.decision = decision;
    }

    /** {@return what was decided} */
    public Decision decision() {
        return decision;
    }

    /**
     * The permit, to be closed after use. Over the limit of a policy with {@code overflow: shadow} it holds nothing.
     *
     * @return the permit
     * @throws RateLimitExceededException if it was refused; the overflow of its decision is what the policy says to do instead
     */
    public Permit orElseThrow() {
        decision.orThrow();
        return new Permit(limiter, key, id, decision);
    }
}
