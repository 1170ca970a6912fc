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
    /** Units in use of a new key. */
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
            perPermit = (long) Math.min(Math.ceil(n[0] * SMOOTH_TICKS), DEPTH_MAX);
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
    long limit() {
        return most;
    }

    @Override
    State fresh(long now) {
        return new Filled(fresh, now);
    }

    @Override
    boolean beginsRefused() {
        return fresh > 0 && !afterwards;
    }

    @Override
    State withUsed(long now, long till, long used) {
        return new Filled(Math.min(units(used), UNITS_MAX), now);
    }

    /** So many units in use as of the instant. */
    private final class Filled extends State {
        private long used;
        private long at;

        Filled(long used, long at) {
            this.used = used;
            this.at = at;
        }

        @Override
        State copy() {
            return new Filled(used, at);
        }

        // Time that went back drains nothing.
        private Filled drained(long now) {
            long ticks = Math.max(now - at, 0) / tickUs;
            long drained = Numbers.multiply(ticks, perTick);
            return drained < used ? new Filled(used - drained, at + ticks * tickUs) : new Filled(0, now);
        }

        @Override
        Outcome check(long now, long cost, long maxWaitUs) {
            if (cost > most && !afterwards) {
                return Outcome.NEVER;
            }
            Filled filled = drained(now);
            long units = filled.used + units(cost);
            // Above 2^53 units the numbers would not be exact everywhere.
            long retry = until(units - UNITS_MAX, filled.at, now);
            long wait;
            if (free >= 0) {
                wait = until(filled.used - free, filled.at, now);
                retry = Math.max(retry, until(units - depth, filled.at, now));
                retry = maxWaitUs < 0 ? retry : Math.max(retry, wait - maxWaitUs);
            } else {
                wait = until((afterwards ? filled.used : units) - depth, filled.at, now);
                retry = Math.max(retry, wait - Math.max(maxWaitUs, 0));
            }
            return new Outcome(retry <= 0, retry <= 0 ? wait : retry);
        }

        @Override
        void charge(long now, long cost, PermitId permit) {
            Filled filled = drained(now);
            at = filled.at;
            if (tickUs > 1 && !stepped && filled.used < perTick) {
                // The running tick will drain more than is in use: of the time that it has run for, only as much counts as
                // emptied the bucket.
                at = Math.max(at, now - Numbers.mulDivDown(filled.used, tickUs, perTick));
            }
            used = Math.min(filled.used + units(cost), UNITS_MAX);
        }

        @Override
        long available(long now) {
            return afterwards && drained(now).used <= depth ? UNITS_MAX : remaining(now);
        }

        @Override
        long remaining(long now) {
            return Math.max(depth - drained(now).used, 0) / perPermit;
        }

        @Override
        long resetAfterUs(long now) {
            Filled filled = drained(now);
            return until(filled.used, filled.at, now);
        }

        @Override
        long refund(long now, long cost) {
            Filled filled = drained(now);
            long back = Math.min(units(cost), filled.used);
            used = filled.used - back;
            at = filled.at;
            return Numbers.ceilDiv(back, perPermit);
        }

        @Override
        boolean rewind(long now) {
            boolean isLater = at > now;
            at = Math.min(at, now);
            return isLater;
        }

        @Override
        long used(long now) {
            return Numbers.ceilDiv(drained(now).used, perPermit);
        }
    }
}
