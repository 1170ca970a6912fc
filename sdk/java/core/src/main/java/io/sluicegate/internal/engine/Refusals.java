package io.sluicegate.internal.engine;

import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.RuleSet;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Remembers what Redis refused: until its retry it stays refused, but for refunds. Times are µs. */
final class Refusals {
    /** Refusals that are remembered; it does not matter which fall out. */
    private static final int REFUSALS_MAX = 100_000;
    private static final long ASK_AGAIN_US = 1_000_000;
    private static final long ASKING_US = 50_000;
    private static final long NOBODY = Long.MIN_VALUE;

    private final Map<Place, Refusal> refusals = new ConcurrentHashMap<>();

    private record Refusal(Answer answer, long cost, RuleSet rules, long version, long at, AtomicLong askedAt) {}

    /** {@return the refusal of this check with the times of now, or null} */
    Answer find(Place place, long cost, RuleSet rules, long version, long nowUs) {
        Refusal refusal = refusals.get(place);
        if (refusal == null || refusal.cost != cost || !refusal.rules.equals(rules) || refusal.version != version) {
            return null;
        }
        long elapsed = nowUs - refusal.at;
        Answer said = refusal.answer;
        boolean never = said.retryAfterUs() == Numbers.NEVER;
        if (elapsed < 0 || !never && elapsed >= said.retryAfterUs()) {
            return null;
        }
        if (elapsed >= ASK_AGAIN_US) {
            long asked = refusal.askedAt.get();
            boolean othersAsk = asked != NOBODY && nowUs >= asked && nowUs - asked < ASKING_US;
            if (!othersAsk && refusal.askedAt.compareAndSet(asked, nowUs)) {
                return null;
            }
        }
        return new Answer(false, 0, 0, said.limit(), said.remaining(), never ? Numbers.NEVER : said.retryAfterUs() - elapsed,
            Math.max(said.resetAfterUs() - elapsed, 0), said.rule());
    }

    void remember(Place place, Answer refused, long cost, RuleSet rules, long version, long nowUs) {
        if (refusals.size() >= REFUSALS_MAX && !refusals.containsKey(place)) {
            var any = refusals.keySet().iterator();
            if (any.hasNext()) {
                refusals.remove(any.next());
            }
        }
        refusals.put(place, new Refusal(refused, cost, rules, version, nowUs, new AtomicLong(NOBODY)));
    }

    void forget(Place place) {
        refusals.remove(place);
    }

    /** Forgets the refusal of a check that was allowed now. */
    void allowed(Place place, long cost, RuleSet rules) {
        refusals.computeIfPresent(place, (at, refusal) -> refusal.cost == cost && refusal.rules.equals(rules) ? null : refusal);
    }
}
