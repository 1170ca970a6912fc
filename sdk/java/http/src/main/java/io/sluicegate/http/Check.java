package io.sluicegate.http;

/**
 * One check of several.
 *
 * @param policy the policy's name
 * @param key whose budget, 1 to 1,024 bytes of UTF-8; null for the one that all share
 * @param cost how many permits, 1 to 2^31
 */
public record Check(String policy, String key, long cost) {
    /**
     * A check of one permit.
     *
     * @param policy the policy's name
     * @param key whose budget
     */
    public Check(String policy, String key) {
        this(policy, key, 1);
    }
}
