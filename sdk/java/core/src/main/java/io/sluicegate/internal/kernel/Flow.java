package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.SPAN_MAX_US;
import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

import java.util.function.LongUnaryOperator;

/** What flows per tick, and what one permit weighs: what token and leaky buckets have in common. */
abstract class Flow extends Algorithm {
    final long tickUs;
    final long perTick;
    final long perPermit;
    final long depth;
    final long limit;
    final boolean stepped;

    Flow(double[] numbers) {
        tickUs = (long) numbers[0];
        perTick = (long) numbers[1];
        perPermit = (long) numbers[2];
        depth = (long) numbers[3];
        limit = (long) numbers[4];
        stepped = numbers[6] == 1;
    }

    /** So many units in use as of the instant. */
    static final class Level implements State {
        long used;
        long at;

        Level(long used, long at) {
            this.used = used;
            this.at = at;
        }

        @Override
        public State copy() {
            return new Level(used, at);
        }
    }

    /** Units in use of a key that was never seen. */
    abstract long usedAtFirst();

    /** The level as it is at {@code now}. */
    final Level levelAt(State state, long now) {
        if (state == null) {
            return new Level(usedAtFirst(), now);
        }
        Level level = (Level) state;
        return level.at == now ? new Level(level.used, level.at) : drain(level, now);
    }

    // Time that went backwards carries nothing.
    final Level drain(Level level, long now) {
        long ticks = Math.max(now - level.at, 0) / tickUs;
        long carried = Numbers.multiply(ticks, perTick);
        if (carried >= level.used) {
            return new Level(0, now);
        }
        return new Level(level.used - carried, level.at + ticks * tickUs);
    }

    final Level fill(Level level, long now, long units) {
        if (tickUs == 1 || stepped || level.used >= perTick) {
            return new Level(level.used + units, level.at);
        }
        // The running tick will carry more than is in use: of the time that it has run for, only as much counts as
        // emptied the bucket. The rest found nothing to carry.
        long emptied = Numbers.mulDivDown(level.used, tickUs, perTick);
        return new Level(level.used + units, Math.max(level.at, now - emptied));
    }

    /** From {@code now} until so many units of a drained level have flowed out, rounded up, capped. */
    final long timeToDrain(long used, long at, long now) {
        if (used <= 0) {
            return 0;
        }
        long ticks = Numbers.ceilDiv(used, perTick);
        long whole = Numbers.multiply(ticks - 1, tickUs);
        if (whole > SPAN_MAX_US * 2) {
            return SPAN_MAX_US;
        }
        long span = whole + (tickUs - Math.max(now - at, 0));
        return Math.min(Math.max(span, 0), SPAN_MAX_US);
    }

    @Override
    public final long limit() {
        return limit;
    }

    @Override
    final State charge(State state, At at, long cost, PermitId permit) {
        return fill(levelAt(state, at.now()), at.now(), cost * perPermit);
    }

    @Override
    final long available(State state, At at) {
        return remaining(levelAt(state, at.now()));
    }

    @Override
    final Status status(State state, At at) {
        Level level = levelAt(state, at.now());
        return new Status(remaining(level), timeToDrain(level.used, level.at, at.now()));
    }

    private long remaining(Level level) {
        return left(depth, level.used) / perPermit;
    }

    @Override
    final long refund(State state, At at, long cost) {
        Level level = levelAt(state, at.now());
        long back = Math.min(Numbers.multiply(cost, perPermit), level.used);
        Level kept = (Level) state;
        kept.used = level.used - back;
        kept.at = level.at;
        return Numbers.ceilDiv(back, perPermit);
    }

    @Override
    final boolean rewind(State state, At at) {
        Level level = (Level) state;
        if (level.at <= at.now()) {
            return false;
        }
        level.at = at.now();
        return true;
    }

    @Override
    final long used(State state, At at) {
        return Numbers.ceilDiv(levelAt(state, at.now()).used, perPermit);
    }

    @Override
    final State withUsed(At at, long used) {
        return new Level(Math.min(Numbers.multiply(used, perPermit), UNITS_MAX), at.now());
    }

    @Override
    final State convert(State state, At at, Algorithm earlier) {
        Flow old = (Flow) earlier;
        return takeOver(old, (Level) state, perPermit, old.perPermit, at.now());
    }

    // The same part of a full bucket, to the unit: a permit that has come back in part stays so.
    @Override
    final State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        Flow old = (Flow) earlier;
        return takeOver(old, (Level) state, depth, old.depth, at.now());
    }

    // A level of the old rule under this one: of what is in use, `to` units for each `from`, rounded up.
    private Level takeOver(Flow old, Level before, long to, long from, long now) {
        Level level = old.drain(before, now);
        // Permits that come together come when they were due, however many they are by then. Any other part of a
        // tick that was not counted yet counts for nothing when the tick changes.
        boolean inStep = stepped && old.stepped && tickUs == old.tickUs;
        boolean same = tickUs == old.tickUs && perTick == old.perTick && perPermit == old.perPermit
            && stepped == old.stepped;
        return new Level(Numbers.mulDivUp(level.used, to, from), inStep || same ? level.at : now);
    }

    @Override
    final long fillUs() {
        return timeToDrain(depth, 0, 0);
    }
}
