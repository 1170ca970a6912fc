package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.DEPTH_MAX;
import static io.sluicegate.internal.kernel.Numbers.SPAN_MAX_US;
import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

/**
 * The primitive of `token_bucket`, `leaky_bucket` and Guava's two: what is in use drains at a steady rate. Its numbers are
 * units, of which one permit weighs so many, so that nothing is rounded: spec/failure.md, "A level".
 */
final class Level extends Primitive {
    /** Units that drain each µs where the time between two permits is a double. */
    private static final long SMOOTH_TICKS = 1024;
    /** More than any level, of which two can be added. */
    private static final long SATURATED = 1L << 61;

    private final long tickUs;
    private final long perTick;
    private final long perPermit;
    private final long depth;
    private final long most;
    // Units in use of a new key.
    private final long fresh;
    private final boolean stepped;
    // Units above which a request that passes waits; below 0: none waits.
    private final long free;
    // A request of any cost passes when no more than the depth is in use: the next one waits.
    private final boolean afterwards;

    Level(int code, double[] n) {
        stepped = code == 1 && n[6] == 1;
        afterwards = code == 2 || code == 3;
        if (code == 2) {
            tickUs = 1;
            perTick = (long) n[0];
            perPermit = (long) n[1];
            depth = (long) Math.min(n[2] * n[1], DEPTH_MAX);
            fresh = depth;
        } else if (code == 3) {
            tickUs = 1;
            perTick = SMOOTH_TICKS;
            // A permit weighs what drains in the time between two, rounded up.
            perPermit = (long) Math.min(Numbers.ceil(n[0] * SMOOTH_TICKS), DEPTH_MAX);
            depth = 0;
            fresh = 0;
        } else {
            tickUs = (long) n[0];
            perTick = (long) n[1];
            perPermit = (long) n[2];
            depth = (long) n[3];
            fresh = code == 1 ? (long) n[5] : 0;
        }
        most = afterwards ? Math.max((long) Math.min(n[2], DEPTH_MAX), 1) : (long) n[4];
        free = code != 4 ? -1 : n[5] == 1 ? (long) n[7] : depth;
        if (tickUs < 1 || perTick < 1 || perPermit < 1 || !afterwards && (depth < 1 || most < 1)) {
            throw new IllegalArgumentException("a level without a rate or a depth");
        }
    }

    /** So many units in use as of the instant. */
    private static final class Filled implements State {
        long used;
        long at;

        Filled(long used, long at) {
            this.used = used;
            this.at = at;
        }

        @Override
        public State copy() {
            return new Filled(used, at);
        }
    }

    // What is in use at `now`; of a new key that is `fresh`. Time that went back drains nothing.
    private Filled at(State state, long now) {
        if (state == null) {
            return new Filled(fresh, now);
        }
        Filled filled = (Filled) state;
        long ticks = Math.max(now - filled.at, 0) / tickUs;
        long drained = Numbers.multiply(ticks, perTick);
        return drained < filled.used ? new Filled(filled.used - drained, filled.at + ticks * tickUs) : new Filled(0, now);
    }

    private long units(long permits) {
        return Math.min(Numbers.multiply(permits, perPermit), SATURATED);
    }

    // The µs until so many units have drained, rounded up.
    private long until(long units, long at, long now) {
        if (units <= 0) {
            return 0;
        }
        long span = Math.min(Numbers.multiply(Numbers.ceilDiv(units, perTick), tickUs), SATURATED) - Math.max(now - at, 0);
        return Math.min(Math.max(span, 0), SPAN_MAX_US);
    }

    /** {@return whether what a request takes is paid afterwards, as with Guava's two} */
    boolean isPaidAfterwards() {
        return afterwards;
    }

    /** {@return the permits that Guava's two have in use when nothing is stored and nothing is owed} */
    long unstored() {
        return Numbers.ceilDiv(depth, perPermit);
    }

    @Override
    public long limit() {
        return most;
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        if (cost > most && !afterwards) {
            return Outcome.NEVER;
        }
        Filled filled = at(state, at.now());
        long units = units(cost);
        // Above 2^53 units the numbers would not be exact everywhere.
        long retry = until(filled.used + units - UNITS_MAX, filled.at, at.now());
        long wait;
        if (free >= 0) {
            wait = until(filled.used - free, filled.at, at.now());
            retry = Math.max(retry, until(filled.used + units - depth, filled.at, at.now()));
            retry = maxWaitUs < 0 ? retry : Math.max(retry, wait - maxWaitUs);
        } else {
            wait = until(filled.used - depth + (afterwards ? 0 : units), filled.at, at.now());
            retry = Math.max(retry, wait - Math.max(maxWaitUs, 0));
        }
        return retry <= 0 ? Outcome.after(wait) : Outcome.retry(retry);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Filled filled = at(state, at.now());
        if (tickUs > 1 && !stepped && filled.used < perTick) {
            // The running tick will drain more than is in use: of the time that it has run for, only as much counts as
            // emptied the bucket.
            filled.at = Math.max(filled.at, at.now() - Numbers.mulDivDown(filled.used, tickUs, perTick));
        }
        filled.used = Math.min(filled.used + units(cost), UNITS_MAX);
        return filled;
    }

    @Override
    State firstSeen(At at) {
        return fresh == 0 || afterwards ? null : new Filled(fresh, at.now());
    }

    @Override
    long available(State state, At at) {
        Filled filled = at(state, at.now());
        return afterwards && filled.used <= depth ? UNITS_MAX : Math.max(depth - filled.used, 0) / perPermit;
    }

    @Override
    Status status(State state, At at) {
        Filled filled = at(state, at.now());
        return new Status(Math.max(depth - filled.used, 0) / perPermit, until(filled.used, filled.at, at.now()));
    }

    @Override
    long refund(State state, At at, long cost) {
        Filled filled = at(state, at.now());
        long back = Math.min(units(cost), filled.used);
        Filled kept = (Filled) state;
        kept.used = filled.used - back;
        kept.at = filled.at;
        return Numbers.ceilDiv(back, perPermit);
    }

    @Override
    boolean rewind(State state, At at) {
        Filled filled = (Filled) state;
        if (filled.at <= at.now()) {
            return false;
        }
        filled.at = at.now();
        return true;
    }

    @Override
    long used(State state, At at) {
        return Numbers.ceilDiv(at(state, at.now()).used, perPermit);
    }

    @Override
    State withUsed(At at, long used) {
        return new Filled(Math.min(units(used), UNITS_MAX), at.now());
    }
}
