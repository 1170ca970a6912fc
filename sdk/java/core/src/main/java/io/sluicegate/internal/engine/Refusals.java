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
    private static final long RECHECK_AFTER_US = 1_000_000;
    private static final long PROBE_US = 50_000;
    private static final long NO_PROBE = Long.MIN_VALUE;

    private final Map<Place, Refusal> refusals = new ConcurrentHashMap<>();

    private record Refusal(Answer answer, long cost, RuleSet rules, long version, long at, AtomicLong probedAt) {}

    /** {@return the refusal of this check with the times of now, or null} */
    Answer find(Place place, long cost, RuleSet rules, long version, long nowUs) {
        Refusal refusal = refusals.get(place);
        if (refusal == null || refusal.cost != cost || !refusal.rules.equals(rules) || refusal.version != version) {
            return null;
        }
        long elapsed = nowUs - refusal.at;
        Answer answer = refusal.answer;
        boolean never = answer.retryAfterUs() == Numbers.NEVER;
        if (elapsed < 0 || !never && elapsed >= answer.retryAfterUs()) {
            return null;
        }
        if (elapsed >= RECHECK_AFTER_US) {
            long lastProbe = refusal.probedAt.get();
            boolean isProbed = lastProbe != NO_PROBE && nowUs >= lastProbe && nowUs - lastProbe < PROBE_US;
            if (!isProbed && refusal.probedAt.compareAndSet(lastProbe, nowUs)) {
                return null;
            }
        }
        return new Answer(false, 0, 0, answer.limit(), answer.remaining(), never ? Numbers.NEVER : answer.retryAfterUs() - elapsed,
            Math.max(answer.resetAfterUs() - elapsed, 0), answer.rule());
    }

    void remember(Place place, Answer refused, long cost, RuleSet rules, long version, long nowUs) {
        if (refusals.size() >= REFUSALS_MAX && !refusals.containsKey(place)) {
            var any = refusals.keySet().iterator();
            if (any.hasNext()) {
                refusals.remove(any.next());
            }
        }
        refusals.put(place, new Refusal(refused, cost, rules, version, nowUs, new AtomicLong(NO_PROBE)));
    }

    void forget(Place place) {
        refusals.remove(place);
    }

    /** Forgets the refusal of a check that was allowed now. */
    void allowed(Place place, long cost, RuleSet rules) {
        refusals.computeIfPresent(place, (at, refusal) -> refusal.cost == cost && refusal.rules.equals(rules) ? null : refusal);
    }
}
