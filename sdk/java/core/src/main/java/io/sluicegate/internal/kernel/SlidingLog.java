package io.sluicegate.internal.kernel;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.LongUnaryOperator;

/** Remembers when each permit was granted; at most 10,000 entries, as its limit is. */
final class SlidingLog extends Algorithm {
    private final long limit;
    private final long windowUs;

    SlidingLog(double[] numbers) {
        limit = (long) numbers[0];
        windowUs = (long) numbers[1];
    }

    private record Entry(long at, long cost) {}

    private static final class Log implements State {
        final List<Entry> entries;
        long sum;

        Log(List<Entry> entries, long sum) {
            this.entries = entries;
            this.sum = sum;
        }

        @Override
        public State copy() {
            return new Log(new ArrayList<>(entries), sum);
        }
    }

    private boolean gone(Entry entry, long now) {
        return entry.at + windowUs <= now;
    }

    private int firstLive(Log log, long now) {
        int place = 0;
        while (place < log.entries.size() && gone(log.entries.get(place), now)) {
            place++;
        }
        return place;
    }

    private long sumAt(State state, long now) {
        if (state == null) {
            return 0;
        }
        Log log = (Log) state;
        long sum = log.sum;
        for (Entry entry : log.entries.subList(0, firstLive(log, now))) {
            sum -= entry.cost;
        }
        return sum;
    }

    private void forgetGone(Log log, long now) {
        List<Entry> gone = log.entries.subList(0, firstLive(log, now));
        for (Entry entry : gone) {
            log.sum -= entry.cost;
        }
        gone.clear();
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
        Log log = (Log) state;
        long retry = 0;
        for (int place = firstLive(log, at.now()); place < log.entries.size() && wanted > limit; place++) {
            Entry entry = log.entries.get(place);
            wanted -= entry.cost;
            retry = entry.at + windowUs - at.now();
        }
        return Outcome.retry(retry);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Log log = state == null ? new Log(new ArrayList<>(), 0) : (Log) state;
        forgetGone(log, at.now());
        log.entries.add(new Entry(at.now(), cost));
        log.sum += cost;
        return log;
    }

    @Override
    long available(State state, At at) {
        return left(limit, sumAt(state, at.now()));
    }

    @Override
    Status status(State state, At at) {
        long resetAfter = 0;
        if (state != null && !((Log) state).entries.isEmpty()) {
            List<Entry> entries = ((Log) state).entries;
            resetAfter = Math.max(entries.get(entries.size() - 1).at + windowUs - at.now(), 0);
        }
        return new Status(left(limit, sumAt(state, at.now())), resetAfter);
    }

    @Override
    long refund(State state, At at, long cost) {
        Log log = (Log) state;
        forgetGone(log, at.now());
        long left = cost;
        while (left > 0 && !log.entries.isEmpty()) {
            Entry newest = log.entries.remove(log.entries.size() - 1);
            long back = Math.min(newest.cost, left);
            left -= back;
            if (newest.cost > back) {
                log.entries.add(new Entry(newest.at, newest.cost - back));
            }
        }
        log.sum -= cost - left;
        return cost - left;
    }

    // What was granted later than now was granted now.
    @Override
    boolean rewind(State state, At at) {
        List<Entry> entries = ((Log) state).entries;
        boolean moved = false;
        for (int place = entries.size() - 1; place >= 0 && entries.get(place).at > at.now(); place--) {
            entries.set(place, new Entry(at.now(), entries.get(place).cost));
            moved = true;
        }
        return moved;
    }

    @Override
    long used(State state, At at) {
        return sumAt(state, at.now());
    }

    @Override
    State withUsed(At at, long cost) {
        long used = Math.min(cost, limit);
        List<Entry> entries = new ArrayList<>();
        if (used > 0) {
            entries.add(new Entry(at.now(), used));
        }
        return new Log(entries, used);
    }

    @Override
    State convert(State state, At at, Algorithm earlier) {
        ((SlidingLog) earlier).forgetGone((Log) state, at.now());
        return state;
    }

    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        if (windowUs != ((SlidingLog) earlier).windowUs) {
            return null;
        }
        List<Entry> entries = ((Log) state).entries;
        List<Entry> kept = new ArrayList<>();
        long sum = 0;
        long before = 0;
        for (int place = entries.size() - 1; place >= 0; place--) {
            Entry entry = entries.get(place);
            sum += entry.cost;
            long after = Math.min(scaled.applyAsLong(sum), limit);
            if (after > before) {
                kept.add(new Entry(entry.at, after - before));
            }
            before = after;
        }
        Collections.reverse(kept);
        return new Log(kept, before);
    }

    @Override
    long fillUs() {
        return windowUs;
    }
}
