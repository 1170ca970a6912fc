package io.sluicegate.internal.kernel;

/** Requests leave at a rate: what comes faster is held back, and what would not fit the queue is refused. */
final class LeakyBucket extends Flow {
    private final boolean delayed;
    private final long delay;

    LeakyBucket(double[] numbers) {
        super(numbers);
        delayed = numbers[5] == 1;
        delay = (long) numbers[7];
    }

    @Override
    long usedAtFirst() {
        return 0;
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        if (cost > limit) {
            return Outcome.NEVER;
        }
        Level level = levelAt(state, at.now());
        long retry = timeToDrain(level.used - depth + cost * perPermit, level.at, at.now());
        long wait = delayed ? timeToDrain(level.used - delay, level.at, at.now()) : 0;
        if (maxWaitUs >= 0) {
            retry = Math.max(retry, wait - maxWaitUs);
        }
        return retry <= 0 ? Outcome.after(wait) : Outcome.retry(retry);
    }
}
