package io.sluicegate.internal.kernel;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * The primitive of `fixed_window` and the sliding ones: ten buckets and one more. What was admitted counts until its bucket
 * no longer overlaps the window, so that no interval of the window's length has more than the limit: spec/failure.md,
 * "A window".
 */
final class Window extends Primitive {
    private static final int BUCKETS = 11;
    private static final long HOUR_US = 3_600_000_000L;
    /** The longest day, week, month and year: an hour more where clocks are put back. */
    private static final long[] LONGEST_US = {25 * HOUR_US, (7 * 24 + 1) * HOUR_US, (31 * 24 + 1) * HOUR_US, (366 * 24 + 1) * HOUR_US};
    private static final int SLIDES = -1;
    private static final int FIRST = 1;
    private static final int CALENDAR = 2;

    private final long limit;
    private final int kind;
    private final long spanUs;
    private final long bucketUs;

    Window(int code, double[] n) {
        limit = (long) n[0];
        kind = code == 5 ? (int) n[1] : SLIDES;
        spanUs = kind == CALENDAR ? LONGEST_US[(int) n[3]] : (long) (kind == SLIDES ? n[1] : n[2]);
        bucketUs = Numbers.ceilDiv(spanUs, BUCKETS - 1);
        if (limit < 1 || spanUs < 1) {
            throw new IllegalArgumentException("a window without a limit or a length");
        }
    }

    /** The count of bucket b at b modulo their number, for the newest and those before it; and what Redis said. */
    private static final class Counts implements State {
        long newest;
        long[] in;
        long said;
        long till;

        Counts(long newest) {
            this.newest = newest;
            this.in = new long[BUCKETS];
        }

        @Override
        public State copy() {
            Counts copy = new Counts(newest);
            copy.in = in.clone();
            copy.said = said;
            copy.till = till;
            return copy;
        }
    }

    /** A count, and when it ends. */
    private record Counted(long end, long count) {}

    private long firstLive(Counts counts, long now) {
        return Math.max(Math.max(counts.newest + 1 - BUCKETS, Math.max(now + 1 - spanUs, 0) / bucketUs), 0);
    }

    // What counts at `now`: what Redis said, then buckets in their order.
    private List<Counted> counted(State state, long now) {
        List<Counted> counted = new ArrayList<>();
        if (state == null) {
            return counted;
        }
        Counts counts = (Counts) state;
        if (now < counts.till && counts.said > 0) {
            counted.add(new Counted(counts.till, counts.said));
        }
        for (long bucket = firstLive(counts, now); bucket <= counts.newest; bucket++) {
            long count = counts.in[(int) (bucket % BUCKETS)];
            if (count > 0) {
                counted.add(new Counted((bucket + 1) * bucketUs + spanUs - 1, count));
            }
        }
        return counted;
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
        long over = used(state, at) + cost - limit;
        if (over <= 0) {
            return Outcome.NOW;
        }
        List<Counted> counted = counted(state, at.now());
        counted.sort(Comparator.comparingLong(Counted::end));
        long end = at.now();
        for (Counted each : counted) {
            if (over > 0) {
                over -= each.count;
                end = each.end;
            }
        }
        return Outcome.retry(end - at.now());
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        long bucket = at.now() / bucketUs;
        Counts counts = state == null ? new Counts(bucket) : (Counts) state;
        for (long next = Math.max(counts.newest + 1, bucket + 1 - BUCKETS); next <= bucket; next++) {
            counts.in[(int) (next % BUCKETS)] = 0;
        }
        counts.newest = Math.max(counts.newest, bucket);
        counts.in[(int) (counts.newest % BUCKETS)] += cost;
        return counts;
    }

    @Override
    long available(State state, At at) {
        return Math.max(limit - used(state, at), 0);
    }

    @Override
    Status status(State state, At at) {
        long last = at.now();
        for (Counted each : counted(state, at.now())) {
            last = Math.max(last, each.end);
        }
        return new Status(available(state, at), last - at.now());
    }

    // What counts the longest goes back first.
    @Override
    long refund(State state, At at, long cost) {
        Counts counts = (Counts) state;
        long left = cost;
        for (long bucket = counts.newest; bucket >= firstLive(counts, at.now()); bucket--) {
            long back = Math.min(left, counts.in[(int) (bucket % BUCKETS)]);
            counts.in[(int) (bucket % BUCKETS)] -= back;
            left -= back;
        }
        long back = Math.min(left, at.now() < counts.till ? counts.said : 0);
        counts.said -= back;
        return cost - left + back;
    }

    @Override
    boolean rewind(State state, At at) {
        Counts counts = (Counts) state;
        counts.till = Math.min(counts.till, at.now() + spanUs);
        long bucket = at.now() / bucketUs;
        if (bucket >= counts.newest) {
            return false;
        }
        // The newest bucket is that of now, and the others keep their distances less one: where in its bucket the clock was
        // is not known, so none of them may end sooner than it did.
        long[] earlier = new long[BUCKETS];
        long back = counts.newest - bucket - 1;
        for (long old = Math.max(counts.newest + 1 - BUCKETS, 0); old <= counts.newest; old++) {
            long moved = Math.min(Math.max(old - back, 0), bucket);
            earlier[(int) (moved % BUCKETS)] += counts.in[(int) (old % BUCKETS)];
        }
        counts.newest = bucket;
        counts.in = earlier;
        return true;
    }

    @Override
    long used(State state, At at) {
        long sum = 0;
        for (Counted each : counted(state, at.now())) {
            sum += each.count;
        }
        return sum;
    }

    @Override
    State withUsed(At at, long used) {
        Counts counts = new Counts(at.now() / bucketUs);
        if (kind == SLIDES) {
            counts.in[(int) (counts.newest % BUCKETS)] = used;
            return counts;
        }
        counts.said = used;
        counts.till = switch (kind) {
            case CALENDAR -> at.till();
            case FIRST -> at.now() + spanUs;
            default -> at.now() - at.now() % spanUs + spanUs;
        };
        return counts;
    }
}
