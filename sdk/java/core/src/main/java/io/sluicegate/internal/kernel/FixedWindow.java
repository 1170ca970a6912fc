package io.sluicegate.internal.kernel;

import java.util.function.LongUnaryOperator;

/** Counts what passed in the window that is running: since the epoch, the first request, or of a calendar. */
final class FixedWindow extends Algorithm {
    static final long CALENDAR_MAX_US = 366 * 86_400_000_000L;
    private static final int EPOCH = 0;
    private static final int CALENDAR = 2;

    private final long limit;
    private final int kind;
    private final long spanUs;
    private final long unit;
    private final long zone;

    FixedWindow(double[] numbers) {
        limit = (long) numbers[0];
        kind = (int) numbers[1];
        spanUs = (long) numbers[2];
        unit = (long) numbers[3];
        zone = (long) numbers[4];
    }

    private static final class Count implements State {
        long count;
        long till;

        Count(long count, long till) {
            this.count = count;
            this.till = till;
        }

        @Override
        public State copy() {
            return new Count(count, till);
        }
    }

    private long windowEnd(State state, At at) {
        long now = at.now();
        if (kind == EPOCH) {
            return now - now % spanUs + spanUs;
        }
        if (kind == CALENDAR) {
            return at.till();
        }
        Count held = (Count) state;
        return held != null && now < held.till && held.count > 0 ? held.till : now + spanUs;
    }

    private static long countAt(State state, At at) {
        Count held = (Count) state;
        return held != null && at.now() < held.till ? held.count : 0;
    }

    private boolean sameWindow(FixedWindow old) {
        return kind == old.kind && spanUs == old.spanUs && unit == old.unit && zone == old.zone;
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
        return countAt(state, at) + cost <= limit ? Outcome.NOW : Outcome.retry(windowEnd(state, at) - at.now());
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        return new Count(countAt(state, at) + cost, windowEnd(state, at));
    }

    @Override
    long available(State state, At at) {
        return left(limit, countAt(state, at));
    }

    @Override
    Status status(State state, At at) {
        long count = countAt(state, at);
        return new Status(left(limit, count), count > 0 ? windowEnd(state, at) - at.now() : 0);
    }

    @Override
    long refund(State state, At at, long cost) {
        long back = Math.min(countAt(state, at), cost);
        ((Count) state).count -= back;
        return back;
    }

    // The window that is running now takes the count over.
    @Override
    boolean rewind(State state, At at) {
        long till = windowEnd(null, at);
        Count held = (Count) state;
        if (held.till <= till) {
            return false;
        }
        held.till = till;
        return true;
    }

    @Override
    long used(State state, At at) {
        return countAt(state, at);
    }

    @Override
    State withUsed(At at, long used) {
        return new Count(used, windowEnd(null, at));
    }

    // The same window keeps its end; another takes the count over.
    @Override
    State convert(State state, At at, Algorithm earlier) {
        return sameWindow((FixedWindow) earlier) ? state : new Count(countAt(state, at), windowEnd(null, at));
    }

    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        Count held = (Count) state;
        return sameWindow((FixedWindow) earlier) ? new Count(scaled.applyAsLong(held.count), held.till) : null;
    }

    @Override
    long fillUs() {
        return kind == CALENDAR ? CALENDAR_MAX_US : spanUs;
    }
}
