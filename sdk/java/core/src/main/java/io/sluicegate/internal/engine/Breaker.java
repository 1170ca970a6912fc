package io.sluicegate.internal.engine;

import java.util.Arrays;
import java.util.function.LongSupplier;

/** Stops requests to a Redis that does not answer, and lets one probe through now and then. Times are µs. */
final class Breaker {
    private static final int SLOTS = 10;
    private static final long SLOT_US = 100_000;
    private static final int DECISIONS_MIN = 5;

    private final LongSupplier pauseUs;
    private final long[] numbers = new long[SLOTS];
    private final int[] failures = new int[SLOTS];
    private final int[] successes = new int[SLOTS];
    private boolean open;
    private long since;
    private long pause;

    /** {@code pauseUs} draws how long no request goes to Redis, 100,000 to 300,000. */
    Breaker(LongSupplier pauseUs) {
        this.pauseUs = pauseUs;
        Arrays.fill(numbers, -1);
    }

    /** Returns whether a request may go to Redis. While the breaker is open, the one that may is the probe. */
    synchronized boolean allows(long nowUs) {
        if (open && nowUs >= since && nowUs < since + pause) {
            return false;
        }
        if (open) {
            begin(nowUs);
        }
        return true;
    }

    synchronized boolean isOpen() {
        return open;
    }

    synchronized void succeeded(long nowUs) {
        if (open) {
            open = false;
            Arrays.fill(numbers, -1);
        }
        successes[slot(nowUs)]++;
    }

    synchronized void failed(long nowUs) {
        failures[slot(nowUs)]++;
        if (!open && shouldOpen(nowUs)) {
            open = true;
            begin(nowUs);
        }
    }

    private void begin(long nowUs) {
        since = nowUs;
        pause = pauseUs.getAsLong();
    }

    private boolean shouldOpen(long nowUs) {
        long current = nowUs / SLOT_US;
        int failed = 0;
        int all = 0;
        for (int place = 0; place < SLOTS; place++) {
            if (numbers[place] >= 0 && Math.abs(current - numbers[place]) < SLOTS) {
                failed += failures[place];
                all += failures[place] + successes[place];
            }
        }
        return all >= DECISIONS_MIN && failed * 2 >= all;
    }

    private int slot(long nowUs) {
        long number = nowUs / SLOT_US;
        int place = (int) (number % SLOTS);
        if (numbers[place] != number) {
            numbers[place] = number;
            failures[place] = 0;
            successes[place] = 0;
        }
        return place;
    }
}
