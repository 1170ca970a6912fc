package io.sluicegate;

import java.util.concurrent.CompletableFuture;

/** An attempt to hold a permit. Closing it gives back what is held; of a refusal that is nothing. */
public final class Acquisition implements AutoCloseable {
    private final Decision decision;
    private final Permit permit;

    Acquisition(Limiter limiter, String key, String id, Decision decision) {
        this.decision = decision;
        this.permit = new Permit(limiter, key, id, decision);
    }

    /** {@return what was decided} */
    public Decision decision() {
        return decision;
    }

    /**
     * The permit, to be closed after use; each call returns the same one. Over the limit of a policy with {@code overflow: shadow} it holds
     * nothing.
     *
     * @return the permit
     * @throws RateLimitExceededException if it was refused; the overflow of its decision is what the policy has the program do instead
     */
    public Permit orElseThrow() {
        decision.orThrow();
        return permit;
    }

    /** Closes the permit, if there is one. */
    @Override
    public void close() {
        permit.close();
    }

    /**
     * Closes the permit without blocking, if there is one.
     *
     * @return a future as that of {@link Permit#closeAsync()}
     */
    public CompletableFuture<Void> closeAsync() {
        return permit.closeAsync();
    }
}
