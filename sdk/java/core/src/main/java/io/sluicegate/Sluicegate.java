package io.sluicegate;

import java.time.Clock;

/** Where a program begins. */
public final class Sluicegate {
    private Sluicegate() {}

    /**
     * A gate that decides in Redis.
     *
     * @param port the way to Redis, of the module of its client; the gate closes it, or the builder if it makes none of an option
     * @return a builder, with which you configure the gate
     */
    public static DirectGate.Builder direct(RedisPort port) {
        return new DirectGate.Builder(port);
    }

    /**
     * A gate that decides in the memory of this process, as one without Redis does (never more than a server, sometimes less
     * or later): for tests, and for programs that share
     * nothing.
     *
     * @param clock by which it decides
     * @return the gate
     */
    public static InMemoryGate inMemory(Clock clock) {
        return new InMemoryGate(clock);
    }
}
