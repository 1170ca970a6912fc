package io.sluicegate;

/**
 * A request of a program, checked.
 *
 * @param policy the policy's name
 * @param key the key; null for the budget that all share
 * @param verb the verb of the request
 * @param cost 1 to 2^31
 * @param maxWaitUs of a reserve or an acquire, 0 to 2^53 - 1; -1 of an acquire that has none, and of other verbs
 * @param id of the verbs that name a permit; else null
 */
public record Call(String policy, String key, Verb verb, long cost, long maxWaitUs, String id) {
    /** {@return whether it is an acquire that has a wait of its own, which may be 0} */
    public boolean waitsForPermit() {
        return verb == Verb.ACQUIRE && maxWaitUs >= 0;
    }
}
