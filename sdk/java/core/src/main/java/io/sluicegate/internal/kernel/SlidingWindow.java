package io.sluicegate.internal.kernel;

import java.util.function.LongUnaryOperator;

/** A ring of counters: every counter that overlaps the window counts whole. */
final class SlidingWindow extends Algorithm {
    private final long limit;
    private final long windowUs;
    private final long bucketUs;
    private final int len;

    SlidingWindow(double[] numbers) {
        limit = (long) numbers[0];
        windowUs = (long) numbers[1];
        bucketUs = (long) numbers[2];
        len = (int) numbers[3] + 1;
    }

    private static final class Counters implements State {
        long newest;
        long[] counts;

        Counters(long newest, long[] counts) {
            this.newest = newest;
            this.counts = counts;
        }

        @Override
        public State copy() {
            return new Counters(newest, counts.clone());
        }
    }

    private long oldest(long now) {
        return Math.max(now + 1 - windowUs, 0) / bucketUs;
    }

    private long timeToEnd(long bucket, long now) {
        return Math.max((bucket + 1) * bucketUs - now + windowUs - 1, 0);
    }

    private long oldestRemembered(Counters state) {
        return Math.max(state.newest + 1 - len, 0);
    }

    private long firstLive(Counters state, long now) {
        return Math.max(oldest(now), oldestRemembered(state));
    }

    private int slot(long bucket) {
        return (int) (bucket % len);
    }

    private long sumAt(State state, long now) {
        if (state == null) {
            return 0;
        }
        Counters held = (Counters) state;
        long sum = 0;
        for (long bucket = firstLive(held, now); bucket <= held.newest; bucket++) {
            sum += held.counts[slot(bucket)];
        }
        return sum;
    }

    private Counters empty(long now) {
        return new Counters(now / bucketUs, new long[len]);
    }

    private void advance(Counters state, long now) {
        long bucket = now / bucketUs;
        long steps = Math.min(bucket - state.newest, len);
        for (long pushed = 0; pushed < steps; pushed++) {
            state.counts[slot(bucket - pushed)] = 0;
        }
        state.newest = Math.max(state.newest, bucket);
    }

    private boolean sameWindow(SlidingWindow old) {
        return windowUs == old.windowUs && len == old.len;
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
        long wanted = sumAt(state, at.now()) + cost;
        if (wanted <= limit || state == null) {
            return Outcome.NOW;
        }
        Counters held = (Counters) state;
        long retry = 0;
        for (long bucket = firstLive(held, at.now()); bucket <= held.newest && wanted > limit; bucket++) {
            wanted -= held.counts[slot(bucket)];
            retry = timeToEnd(bucket, at.now());
        }
        return Outcome.retry(retry);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Counters held = state == null ? empty(at.now()) : (Counters) state;
        advance(held, at.now());
        held.counts[slot(held.newest)] += cost;
        return held;
    }

    @Override
    long available(State state, At at) {
        return left(limit, sumAt(state, at.now()));
    }

    @Override
    Status status(State state, At at) {
        long resetAfter = 0;
        if (state != null) {
            Counters held = (Counters) state;
            for (long bucket = held.newest; bucket >= oldestRemembered(held); bucket--) {
                if (held.counts[slot(bucket)] > 0) {
                    resetAfter = timeToEnd(bucket, at.now());
                    break;
                }
            }
        }
        return new Status(left(limit, sumAt(state, at.now())), resetAfter);
    }

    @Override
    long refund(State state, At at, long cost) {
        Counters held = (Counters) state;
        long left = cost;
        for (long bucket = held.newest; bucket >= firstLive(held, at.now()); bucket--) {
            long back = Math.min(left, held.counts[slot(bucket)]);
            held.counts[slot(bucket)] -= back;
            left -= back;
        }
        return cost - left;
    }

    // The newest is now; each older one is one nearer to it than it was, never nearer than 0.
    @Override
    boolean rewind(State state, At at) {
        Counters held = (Counters) state;
        Counters earlier = empty(at.now());
        long bucket = earlier.newest;
        if (bucket >= held.newest) {
            return false;
        }
        long back = held.newest - bucket - 1;
        for (long old = oldestRemembered(held); old <= held.newest; old++) {
            long moved = Math.min(Math.max(old - back, 0), bucket);
            earlier.counts[slot(moved)] += held.counts[slot(old)];
        }
        held.newest = earlier.newest;
        held.counts = earlier.counts;
        return true;
    }

    @Override
    long used(State state, At at) {
        return sumAt(state, at.now());
    }

    @Override
    State withUsed(At at, long used) {
        Counters state = empty(at.now());
        state.counts[slot(state.newest)] = used;
        return state;
    }

    @Override
    State convert(State state, At at, Algorithm earlier) {
        SlidingWindow old = (SlidingWindow) earlier;
        return sameWindow(old) ? state : withUsed(at, old.sumAt(state, at.now()));
    }

    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        if (!sameWindow((SlidingWindow) earlier)) {
            return null;
        }
        Counters held = (Counters) state;
        long[] counts = new long[len];
        long sum = 0;
        long before = 0;
        for (long bucket = held.newest; bucket >= oldestRemembered(held); bucket--) {
            long count = held.counts[slot(bucket)];
            if (count > 0) {
                sum += count;
                long after = scaled.applyAsLong(sum);
                counts[slot(bucket)] = after - before;
                before = after;
            }
        }
        return new Counters(held.newest, counts);
    }

    @Override
    long fillUs() {
        return windowUs + bucketUs;
    }
}
