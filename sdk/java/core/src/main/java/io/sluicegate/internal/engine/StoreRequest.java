package io.sluicegate.internal.engine;

import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.internal.redis.Request.Ticket;

/**
 * A request to the store about one key.
 *
 * @param policy the policy's name
 * @param rules the rules of the key
 * @param head their head
 * @param key the caller's key; empty for the budget that all share
 * @param verb the verb of the request
 * @param cost 1 to 2^31
 * @param maxWaitUs of a reserve
 * @param permit of the verbs that name one; else null
 * @param clock the clock by which Redis decides
 * @param nowUs the process' own time
 * @param bill what is charged before; else null
 * @param ticket of an acquire that waits for its permit, or waits no longer; else null
 */
record StoreRequest(String policy, RuleSet rules, Head head, String key, Verb verb, long cost, long maxWaitUs, PermitId permit,
                Clock clock, long nowUs, Bill bill, Ticket ticket) {
    StoreRequest(String policy, RuleSet rules, Head head, String key, Verb verb, long cost, long maxWaitUs, PermitId permit, Clock clock, long nowUs, Bill bill) {
        this(policy, rules, head, key, verb, cost, maxWaitUs, permit, clock, nowUs, bill, null);
    }

    Place place() {
        return new Place(policy, key);
    }

    StoreRequest withBill(Bill bill) {
        return new StoreRequest(policy, rules, head, key, verb, cost, maxWaitUs, permit, clock, nowUs, bill, ticket);
    }

    StoreRequest withTicket(Ticket ticket) {
        return new StoreRequest(policy, rules, head, key, verb, cost, maxWaitUs, permit, clock, nowUs, bill, ticket);
    }

    /** {@return another request about the same key, of a verb without a wait and a permit} */
    StoreRequest withVerb(Verb verb, long cost, Bill bill) {
        return new StoreRequest(policy, rules, head, key, verb, cost, 0, null, clock, nowUs, bill);
    }
}
