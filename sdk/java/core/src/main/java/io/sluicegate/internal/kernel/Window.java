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

    @Override
    long limit() {
        return limit;
    }

    @Override
    State fresh(long now) {
        return new Counts(now / bucketUs);
    }

    @Override
    State withUsed(long now, long till, long used) {
        Counts counts = new Counts(now / bucketUs);
        if (kind == SLIDES) {
            counts.in[place(counts.newest)] = used;
            return counts;
        }
        counts.reported = used;
        counts.till = kind == CALENDAR ? till : kind == FIRST ? now + spanUs : now - now % spanUs + spanUs;
        return counts;
    }

    private static int place(long bucket) {
        return (int) (bucket % BUCKETS);
    }

    /** A count, and when it ends. */
    private record Counted(long end, long count) {}

    /** The count of bucket b at b modulo their number, for the newest and those before it; and what Redis reported. */
    private final class Counts extends State {
        private long newest;
        private long[] in = new long[BUCKETS];
        private long reported;
        private long till;

        Counts(long newest) {
            this.newest = newest;
        }

        @Override
        State copy() {
            Counts copy = new Counts(newest);
            copy.in = in.clone();
            copy.reported = reported;
            copy.till = till;
            return copy;
        }

        private long firstLive(long now) {
            return Math.max(Math.max(newest + 1 - BUCKETS, Math.max(now + 1 - spanUs, 0) / bucketUs), 0);
        }

        // What counts at `now`: what Redis reported, then buckets in their order.
        private List<Counted> counted(long now) {
            List<Counted> counted = new ArrayList<>();
            if (now < till && reported > 0) {
                counted.add(new Counted(till, reported));
            }
            for (long bucket = firstLive(now); bucket <= newest; bucket++) {
                if (in[place(bucket)] > 0) {
                    counted.add(new Counted((bucket + 1) * bucketUs + spanUs - 1, in[place(bucket)]));
                }
            }
            return counted;
        }

        @Override
        Outcome check(long now, long cost, long maxWaitUs) {
            if (cost > limit) {
                return Outcome.NEVER;
            }
            long over = used(now) + cost - limit;
            if (over <= 0) {
                return Outcome.NOW;
            }
            List<Counted> counted = counted(now);
            counted.sort(Comparator.comparingLong(Counted::end));
            long end = now;
            for (Counted each : counted) {
                end = over > 0 ? each.end : end;
                over -= each.count;
            }
            return new Outcome(false, end - now);
        }

        @Override
        void charge(long now, long cost, PermitId permit) {
            long bucket = now / bucketUs;
            for (long next = Math.max(newest + 1, bucket + 1 - BUCKETS); next <= bucket; next++) {
                in[place(next)] = 0;
            }
            newest = Math.max(newest, bucket);
            in[place(newest)] += cost;
        }

        @Override
        long available(long now) {
            return Math.max(limit - used(now), 0);
        }

        @Override
        long resetAfterUs(long now) {
            return counted(now).stream().mapToLong(each -> each.end - now).max().orElse(0);
        }

        // What counts the longest goes back first.
        @Override
        long refund(long now, long cost) {
            long left = cost;
            for (long bucket = newest; bucket >= firstLive(now); bucket--) {
                long back = Math.min(left, in[place(bucket)]);
                in[place(bucket)] -= back;
                left -= back;
            }
            long back = Math.min(left, now < till ? reported : 0);
            reported -= back;
            return cost - left + back;
        }

        @Override
        boolean rewind(long now) {
            till = Math.min(till, now + spanUs);
            long bucket = now / bucketUs;
            if (bucket >= newest) {
                return false;
            }
            // The newest bucket is that of now, and the others keep their distances less one: where in its bucket the clock
            // was is not known, so none of them may end sooner than it did.
            long[] earlier = new long[BUCKETS];
            long back = newest - bucket - 1;
            for (long old = Math.max(newest + 1 - BUCKETS, 0); old <= newest; old++) {
                earlier[place(Math.min(Math.max(old - back, 0), bucket))] += in[place(old)];
            }
            newest = bucket;
            in = earlier;
            return true;
        }

        @Override
        long used(long now) {
            return counted(now).stream().mapToLong(Counted::count).sum();
        }
    }
}
