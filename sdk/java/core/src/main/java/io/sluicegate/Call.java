package io.sluicegate;

/**
 * A request of a program, checked.
 *
 * @param policy the policy's name
 * @param key the key; null for the budget that all share
 * @param verb the verb of the request
 * @param cost 1 to 2^31
 * @param maxWaitUs of a reserve, 0 to 2^53 - 1
 * @param id of the verbs that name a permit; else null
 */
public record Call(String policy, String key, Verb verb, long cost, long maxWaitUs, String id) {}
