package io.sluicegate.testing;

import java.util.function.IntConsumer;

/** What a program keeps in its memory. */
public final class Heap {
    /** Bytes: one kB for each of 4,000 decisions. */
    private static final long MOST = 4_000_000;

    private Heap() {}

    private static long used() {
        Runtime runtime = Runtime.getRuntime();
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            least = Math.min(least, runtime.totalMemory() - runtime.freeMemory());
        }
        return least;
    }

    /** Does something so many times, after a tenth of that to begin with, and fails where more is kept afterwards. */
    public static void assertStays(int times, IntConsumer call) {
        for (int i = 0; i < times / 10; i++) {
            call.accept(i);
        }
        long before = used();
        for (int i = 0; i < times; i++) {
            call.accept(i);
        }
        long more = used() - before;
        System.out.printf("%d decisions leave %d kB%n", times, more / 1000);
        if (more > MOST) {
            throw new AssertionError(times + " decisions leave " + more + " bytes");
        }
    }
}
