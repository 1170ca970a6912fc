package io.sluicegate.testing;

import java.util.List;

/** The threads of this process. */
public final class Threads {
    private Threads() {}

    /** {@return those whose names begin so} */
    public static List<Thread> named(String beginning) {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().startsWith(beginning)).toList();
    }
}
