package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.SPAN_MAX_US;
import static io.sluicegate.internal.kernel.Numbers.UNITS_MAX;

import java.util.function.LongUnaryOperator;

/** Guava's SmoothBursty: any cost passes at once, and the next request pays for it. */
final class SmoothBursty extends Algorithm {
    private final double permits;
    private final double periodUs;
    private final double maxStored;

    SmoothBursty(double[] numbers) {
        permits = numbers[0];
        periodUs = numbers[1];
        maxStored = numbers[2];
    }

    private static final class Balance implements State {
        double balance;
        long at;

        Balance(double balance, long at) {
            this.balance = balance;
            this.at = at;
        }

        @Override
        public State copy() {
            return new Balance(balance, at);
        }
    }

    private static double round(double x) {
        return x > -0x1p52 && x < 0x1p52 ? Math.floor(x + 0.5) : x;
    }

    private double balanceAt(State state, long now, long waitUs) {
        if (state == null) {
            return 0;
        }
        Balance held = (Balance) state;
        double elapsed = Math.max(now - held.at, 0) + waitUs;
        double units = round(held.balance * periodUs) + elapsed * permits;
        return Math.min(units / periodUs, maxStored);
    }

    private long timeFor(double stored) {
        return Numbers.span(stored * periodUs / permits);
    }

    private long waitFor(State state, long now) {
        double balance = balanceAt(state, now, 0);
        if (balance >= 0) {
            return 0;
        }
        long wait = timeFor(-balance);
        while (wait < SPAN_MAX_US && balanceAt(state, now, wait) < 0) {
            wait++;
        }
        while (balanceAt(state, now, wait - 1) >= 0) {
            wait--;
        }
        return wait;
    }

    @Override
    public long limit() {
        return Math.max((long) maxStored, 1);
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        long wait = waitFor(state, at.now());
        long longest = Math.max(maxWaitUs, 0);
        return wait > longest ? Outcome.retry(wait - longest) : Outcome.after(wait);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        return new Balance(balanceAt(state, at.now(), 0) - cost, at.now());
    }

    @Override
    long available(State state, At at) {
        return balanceAt(state, at.now(), 0) < 0 ? 0 : UNITS_MAX;
    }

    @Override
    Status status(State state, At at) {
        double balance = balanceAt(state, at.now(), 0);
        return new Status(balance > 0 ? (long) balance : 0, timeFor(maxStored - balance));
    }

    @Override
    long refund(State state, At at, long cost) {
        double balance = balanceAt(state, at.now(), 0);
        double refunded = Math.min(balance + cost, maxStored);
        Balance kept = (Balance) state;
        kept.balance = refunded;
        kept.at = at.now();
        // The difference of two doubles may be a little more than what was added.
        return Math.min((long) Numbers.ceil(refunded - balance), cost);
    }

    @Override
    boolean rewind(State state, At at) {
        Balance held = (Balance) state;
        if (held.at <= at.now()) {
            return false;
        }
        held.at = at.now();
        return true;
    }

    @Override
    long used(State state, At at) {
        return atMostUnits(Numbers.ceil(maxStored - balanceAt(state, at.now(), 0)));
    }

    @Override
    State withUsed(At at, long used) {
        return new Balance(maxStored - used, at.now());
    }

    // Guava's setRate: what is stored is rescaled, and a debt keeps its time.
    @Override
    State convert(State state, At at, Algorithm earlier) {
        SmoothBursty old = (SmoothBursty) earlier;
        double balance = old.balanceAt(state, at.now(), 0);
        if (balance >= 0) {
            balance = balance * maxStored / old.maxStored;
        } else {
            balance = (balance * old.periodUs / old.permits) * permits / periodUs;
        }
        return new Balance(balance, at.now());
    }

    // The conversion keeps the part of a full store to the last bit.
    @Override
    State rescale(State state, LongUnaryOperator scaled, At at, Algorithm earlier) {
        return convert(state, at, earlier);
    }

    @Override
    long fillUs() {
        return timeFor(maxStored);
    }
}
