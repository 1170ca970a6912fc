package io.sluicegate.internal.kernel;

import java.util.function.LongUnaryOperator;

/** Two counters: the window that is running, and as much of the one before as still overlaps. */
final class SlidingCounter extends Algorithm {
    /** A counter has 32 bits. */
    private static final long COUNTER_MAX = (1L << 32) - 1;

    private final long limit;
    private final long windowUs;
    private final long stepUs;
    private final long steps;
    /**
     * What a counter weighs at most: at least {@code limit}. After a higher limit it may have counted more than can be
     * weighed exactly.
     */
    private final long weighedMax;

    SlidingCounter(double[] numbers) {
        limit = (long) numbers[0];
        windowUs = (long) numbers[1];
        stepUs = (long) numbers[2];
        steps = (long) numbers[3];
        // Rules that were read may say steps that no limit and window give: none, or so many that the limit is more.
        weighedMax = Math.max(Numbers.UNITS_MAX / 4 / Math.max(steps, 1), limit);
    }

    private static final class Pair implements State {
        long window;
        long previous;
        long current;

        Pair(long window, long previous, long current) {
            this.window = window;
            this.previous = previous;
            this.current = current;
        }

        @Override
        public State copy() {
            return new Pair(window, previous, current);
        }
    }

    /** The counters as they stand in the window that is running now. */
    private Pair view(State state, long now) {
        long window = now / windowUs;
        if (state == null) {
            return new Pair(window, 0, 0);
        }
        Pair held = (Pair) state;
        if (window < held.window) {
            // Time went back: what later windows counted belongs to the one that is running.
            long most = Math.max(limit, Math.max(held.previous, held.current));
            return new Pair(window, 0, Math.min(held.previous + held.current, most));
        }
        if (window == held.window) {
            return new Pair(window, held.previous, held.current);
        }
        return new Pair(window, window == held.window + 1 ? held.current : 0, 0);
    }

    private static long counter(long count) {
        return Math.min(count, COUNTER_MAX);
    }

    /** The estimate times {@code steps}: how many steps of the previous window still count is rounded up. */
    private long estimate(long elapsedUs, Pair pair) {
        long weight = Math.min(Numbers.ceilDiv(windowUs - elapsedUs, stepUs), steps);
        return Math.min(pair.previous, weighedMax) * weight + Math.min(pair.current, weighedMax) * steps;
    }

    private long free(long elapsedUs, Pair pair) {
        return left(limit * steps, estimate(elapsedUs, pair)) / steps;
    }

    private long elapsedUntil(long previous, long room) {
        if (previous == 0) {
            return 0;
        }
        long weight = room * steps / Math.min(previous, weighedMax);
        return weight < steps ? windowUs - weight * stepUs : 0;
    }

    @Override
    public long limit() {
        return limit;
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        if (cost > limit) {
            return Outcome.NEVER;
        }
        Pair pair = view(state, at.now());
        long elapsedUs = at.now() % windowUs;
        if (cost <= free(elapsedUs, pair)) {
            return Outcome.NOW;
        }
        long room = limit - pair.current - cost;
        long atUs = room >= 0
            ? elapsedUntil(pair.previous, room)
            : windowUs + elapsedUntil(pair.current, limit - cost);
        return Outcome.retry(Math.max(atUs - elapsedUs, 0));
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Pair pair = view(state, at.now());
        pair.current = counter(pair.current + cost);
        return pair;
    }

    @Override
    long available(State state, At at) {
        return free(at.now() % windowUs, view(state, at.now()));
    }

    @Override
    Status status(State state, At at) {
        Pair pair = view(state, at.now());
        long elapsedUs = at.now() % windowUs;
        long fullAfter = pair.current > 0 ? 2 * windowUs : pair.previous > 0 ? windowUs : 0;
        return new Status(free(elapsedUs, pair), Math.max(fullAfter - elapsedUs, 0));
    }

    @Override
    long refund(State state, At at, long cost) {
        Pair pair = view(state, at.now());
        long fromCurrent = Math.min(pair.current, cost);
        long fromPrevious = Math.min(pair.previous, cost - fromCurrent);
        Pair kept = (Pair) state;
        kept.window = pair.window;
        kept.previous = pair.previous - fromPrevious;
        kept.current = pair.current - fromCurrent;
        return fromCurrent + fromPrevious;
    }

    @Override
    boolean rewind(State state, At at) {
        Pair held = (Pair) state;
        Pair pair = view(state, at.now());
        if (pair.window >= held.window) {
            return false;
        }
        held.window = pair.window;
        held.previous = pair.previous;
        held.current = pair.current;
        return true;
    }

    @Override
    long used(State state, At at) {
        return Numbers.ceilDiv(estimate(at.now() % windowUs, view(state, at.now())), steps);
    }

    @Override
    State withUsed(At at, long used) {
        return new Pair(at.now() / windowUs, 0, counter(used));
    }

    /** The same window keeps both counters; another takes the estimate over. */
    @Override
    State convert(State state, At at, Algorithm earlier) {
        SlidingCounter old = (SlidingCounter) earlier;
        return windowUs == old.windowUs ? state : withUsed(at, old.used(state, at));
    }

    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        if (windowUs != ((SlidingCounter) earlier).windowUs) {
            return null;
        }
        Pair held = (Pair) state;
        long current = scaled.applyAsLong(held.current);
        long previous = scaled.applyAsLong(held.previous + held.current) - current;
        return new Pair(held.window, counter(previous), counter(current));
    }

    @Override
    long fillUs() {
        return 2 * windowUs;
    }
}
