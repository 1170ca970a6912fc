package io.sluicegate.testing;

import java.util.function.IntConsumer;

/** The heap of the program, which must not grow with decisions. */
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

    /** Calls a function so many times, after a tenth of that as warm-up, and fails if the heap has grown afterwards. */
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
