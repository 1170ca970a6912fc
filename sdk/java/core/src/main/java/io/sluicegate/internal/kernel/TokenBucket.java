package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

/** Permits flow back at a rate, up to a burst; the future can be booked. */
final class TokenBucket extends Flow {
    private final long spent;

    TokenBucket(double[] numbers) {
        super(numbers);
        spent = (long) numbers[5];
    }

    @Override
    long usedAtFirst() {
        return spent;
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        if (cost > limit) {
            return Outcome.NEVER;
        }
        Level level = levelAt(state, at.now());
        long units = cost * perPermit;
        long excess = level.used - depth + units;
        if (excess <= 0) {
            return Outcome.NOW;
        }
        long wait = timeToDrain(excess, level.at, at.now());
        // A debt beyond UNITS_MAX would leave the numbers that are exact everywhere.
        long tooDeep = timeToDrain(level.used - UNITS_MAX + units, level.at, at.now());
        long retry = Math.max(wait - Math.max(maxWaitUs, 0), tooDeep);
        return retry <= 0 ? Outcome.after(wait) : Outcome.retry(retry);
    }

    @Override
    State firstSeen(At at) {
        return spent > 0 ? new Level(spent, at.now()) : null;
    }
}
