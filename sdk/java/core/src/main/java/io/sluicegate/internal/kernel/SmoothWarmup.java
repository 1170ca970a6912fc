package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.DEPTH_MAX;
import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

import java.util.function.LongUnaryOperator;

/** Guava's SmoothWarmingUp: stored permits above a threshold take longer. */
final class SmoothWarmup extends Algorithm {
    private final double stable;
    private final double threshold;
    private final double maxStored;
    private final double slope;
    private final double cooldown;

    SmoothWarmup(double[] numbers) {
        stable = numbers[0];
        threshold = numbers[1];
        maxStored = numbers[2];
        slope = numbers[3];
        cooldown = numbers[4];
    }

    private static final class Store implements State {
        double stored;
        double debtUs;
        long at;

        Store(double stored, double debtUs, long at) {
            this.stored = stored;
            this.debtUs = debtUs;
            this.at = at;
        }

        @Override
        public State copy() {
            return new Store(stored, debtUs, at);
        }
    }

    private Store asOf(State state, long now) {
        if (state == null) {
            return new Store(maxStored, 0, now);
        }
        Store held = (Store) state;
        double elapsed = Math.max(now - held.at, 0);
        if (elapsed < held.debtUs) {
            return new Store(held.stored, held.debtUs - elapsed, now);
        }
        double idle = elapsed - held.debtUs;
        return new Store(Math.min(held.stored + idle / cooldown, maxStored), 0, now);
    }

    private double interval(double above) {
        return stable + above * slope;
    }

    /** µs that it takes to hand out {@code cost} permits when {@code stored} are stored. */
    private double timeToHandOut(double stored, double cost) {
        double fromStored = Math.min(cost, stored);
        double above = Math.max(stored - threshold, 0);
        double slow = Math.min(fromStored, above);
        double trapezoid = slow * (interval(above) + interval(above - slow)) / 2;
        return trapezoid + (fromStored - slow) * stable + (cost - fromStored) * stable;
    }

    private static long whole(double stored) {
        return stored < DEPTH_MAX ? (long) stored : DEPTH_MAX;
    }

    @Override
    public long limit() {
        return Math.max(whole(maxStored), 1);
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        long wait = Numbers.span(asOf(state, at.now()).debtUs);
        long longest = Math.max(maxWaitUs, 0);
        return wait > longest ? Outcome.retry(wait - longest) : Outcome.after(wait);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Store next = asOf(state, at.now());
        double stored = next.stored;
        next.debtUs = next.debtUs + timeToHandOut(stored, cost);
        next.stored = stored - Math.min(cost, stored);
        return next;
    }

    @Override
    long available(State state, At at) {
        return asOf(state, at.now()).debtUs > 0 ? 0 : UNITS_MAX;
    }

    @Override
    Status status(State state, At at) {
        Store held = asOf(state, at.now());
        long remaining = held.debtUs > 0 ? 0 : whole(held.stored);
        return new Status(remaining, Numbers.span(held.debtUs + (maxStored - held.stored) * cooldown));
    }

    // A debt is paid first, at the stable interval; what is left is stored.
    @Override
    long refund(State state, At at, long cost) {
        Store next = asOf(state, at.now());
        double paidUs = Math.min(cost * stable, next.debtUs);
        double left = Math.max(Math.min(cost - paidUs / stable, maxStored - next.stored), 0);
        Store kept = (Store) state;
        kept.stored = next.stored + left;
        kept.debtUs = next.debtUs - paidUs;
        kept.at = at.now();
        return (long) Math.min(Numbers.ceil(paidUs / stable + left), cost);
    }

    @Override
    boolean rewind(State state, At at) {
        Store held = (Store) state;
        if (held.at <= at.now()) {
            return false;
        }
        held.at = at.now();
        return true;
    }

    @Override
    long used(State state, At at) {
        Store held = asOf(state, at.now());
        return atMostUnits(Numbers.ceil(maxStored - held.stored + held.debtUs / stable));
    }

    @Override
    State withUsed(At at, long used) {
        double spent = Math.min(used, maxStored);
        return new Store(maxStored - spent, (used - spent) * stable, at.now());
    }

    // Guava's setRate: what is stored is rescaled, and a debt keeps its time.
    @Override
    State convert(State state, At at, Algorithm earlier) {
        SmoothWarmup old = (SmoothWarmup) earlier;
        Store held = old.asOf(state, at.now());
        held.stored = held.stored * maxStored / old.maxStored;
        return held;
    }

    // The conversion keeps the part of a full store to the last bit.
    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        return convert(state, at, earlier);
    }

    @Override
    long fillUs() {
        return Numbers.span(maxStored * cooldown);
    }
}
