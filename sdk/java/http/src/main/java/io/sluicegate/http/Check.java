package io.sluicegate.http;

import io.sluicegate.internal.Checks;
import java.util.Objects;

/** A check of a policy, for what only a server can do. It is immutable and safe for all threads. */
public final class Check {
    private final String policy;
    private final String key;
    private final long cost;

    private Check(String policy, long cost, String key) {
        this.policy = Objects.requireNonNull(policy, "policy");
        this.key = key;
        this.cost = Checks.cost(cost);
    }

    /**
     * A check of permits.
     *
     * @param policy the policy's name
     * @param key the key whose budget is charged, 1 to 1,024 bytes of UTF-8
     * @param cost how many permits, 1 to 2^31
     * @throws io.sluicegate.SluicegateException if the key or the cost is not in its range
     */
    public Check(String policy, String key, long cost) {
        this(policy, cost, Checks.key(Objects.requireNonNull(key, "key: is null; the budget that all share is that of `Check.shared`")));
    }

    /**
     * A check of one permit.
     *
     * @param policy the policy's name
     * @param key the key whose budget is charged
     */
    public Check(String policy, String key) {
        this(policy, key, 1);
    }

    /**
     * A check of the budget that all callers without a key share.
     *
     * @param policy the policy's name
     * @param cost how many permits, 1 to 2^31
     * @return the check
     */
    public static Check shared(String policy, long cost) {
        return new Check(policy, cost, null);
    }

    String policy() {
        return policy;
    }

    /** {@return the key; null for the budget that all share} */
    String key() {
        return key;
    }

    long cost() {
        return cost;
    }
}
