package io.sluicegate;

import io.sluicegate.internal.Checks;
import io.sluicegate.internal.engine.Engine;
import io.sluicegate.internal.engine.Options;
import java.time.Clock;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * Decides in Redis itself. It follows the policies that servers publish there, and takes limits of the program's own.
 * It has one daemon thread, and 4 more for calls whose callers do not wait: up to 64 where stages behind their futures block. Over a port
 * that is no {@link AsyncRedisPort}, such as that of Jedis, each such call holds one of at most 64 threads while Redis decides.
 */
public final class DirectGate implements LocalLimits {
    private final Engine engine;

    private DirectGate(Engine engine) {
        this.engine = engine;
    }

    @Override
    public Limiter policy(String name) {
        Limiter limiter = new Limiter(name, engine.published());
        engine.use(name);
        return limiter;
    }

    @Override
    public Limiter limit(String name, Limit limit) {
        return new Limiter(name, engine.limit(limit.policy(name)));
    }

    /** {@return whether Redis does not answer at the moment, so that policies decide by their {@code on_store_failure}} */
    public boolean isDegraded() {
        return engine.isDegraded();
    }

    /**
     * The health of Redis, as this program sees it: {@link GateHealth.State#UP} if it answered lately, and policies are published there, or
     * the program made no limiter of one; {@link GateHealth.State#DOWN} if it made one, and no policy was read yet.
     *
     * @return the health, without asking Redis
     */
    @Override
    public GateHealth health() {
        return engine.health();
    }

    /** Has Redis charge what was admitted without it, for a second at most, and ends the connections. */
    @Override
    public void close() {
        engine.close();
    }

    /** The options of a program. It is for one thread. An option that is not valid closes the port, as no gate will. */
    public static final class Builder {
        private static final long NODES_MAX = (1L << 32) - 1;

        private final RedisPort port;
        private String app;
        private long nodes;
        private Duration deadline = Duration.ofMillis(50);
        private Clock clock = Clock.systemUTC();
        private boolean warmsUp = true;

        Builder(RedisPort port) {
            this.port = Objects.requireNonNull(port, "port");
        }

        private <T> T orClose(Supplier<T> factory) {
            try {
                return factory.get();
            } catch (RuntimeException | Error e) {
                port.close();
                throw e;
            }
        }

        /**
         * The program's app, which policies name in {@code apps}. Nobody checks it: it keeps mistakes apart, not enemies.
         *
         * @param app a name
         * @return this builder
         */
        public Builder app(String app) {
            this.app = orClose(() -> Checks.app(app));
            return this;
        }

        /**
         * Among how many servers and processes a limit is shared while Redis does not answer. Unset, it is what servers
         * publish, or 1.
         *
         * @param nodes 1 to 2^32 - 1
         * @return this builder
         */
        public Builder nodes(long nodes) {
            this.nodes = orClose(() -> {
                if (nodes < 1 || nodes > NODES_MAX) {
                    throw ErrorCode.NODES_RANGE.with(Map.of("value", nodes));
                }
                return nodes;
            });
            return this;
        }

        /**
         * Sets the time that Redis may take for a decision; 50 ms by default.
         *
         * @param deadline 1 ms to 10 s
         * @return this builder
         */
        public Builder deadline(Duration deadline) {
            this.deadline = orClose(() -> Checks.deadline(deadline));
            return this;
        }

        /**
         * The process' own clock; that of the system by default. It should not jump.
         *
         * @param clock the clock
         * @return this builder
         */
        public Builder clock(Clock clock) {
            this.clock = orClose(() -> Objects.requireNonNull(clock, "clock"));
            return this;
        }

        /**
         * Says whether the process has just started, and runs the path of a decision for the first time; it is so by default. Then
         * {@link #build()} looks at Redis some hundred times, for half a second at most, and in the first 5 s after the first decision the
         * deadline is 500 ms, if it is set to less: what a JVM loads and compiles meanwhile is no silence of Redis.
         *
         * @param warmsUp false for a process that has run decisions before, and for tests about short deadlines
         * @return this builder
         */
        public Builder warmUp(boolean warmsUp) {
            this.warmsUp = warmsUp;
            return this;
        }

        /**
         * Makes the gate. It looks at Redis before, unless {@link #warmUp} is off, so that the first decisions are as fast as others: that
         * charges nothing. Where Redis takes a connection and does not answer, it waits for 5 s at most.
         *
         * @return the gate, which owns the port and closes it
         */
        public DirectGate build() {
            return orClose(() -> new DirectGate(new Engine(port, new Options(app, nodes, deadline.toNanos(), clock, warmsUp))));
        }
    }
}
