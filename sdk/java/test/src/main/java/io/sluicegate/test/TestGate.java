package io.sluicegate.test;

import io.sluicegate.Gate;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;

/**
 * A gate in memory whose time stands still until a test moves it. It decides as one without Redis does.
 */
public final class TestGate implements Gate {
    private static final Instant START = Instant.parse("2026-01-01T00:00:00Z");

    private final StandingClock clock = new StandingClock();
    private final InMemoryGate gate = Sluicegate.inMemory(clock);

    /** Makes a gate without policies, at the beginning of 2026. */
    public TestGate() {
        // Its parts are made above.
    }

    private static final class StandingClock extends Clock {
        private volatile Instant now = START;

        @Override
        public ZoneId getZone() {
            return ZoneOffset.UTC;
        }

        @Override
        public Clock withZone(ZoneId zone) {
            return this;
        }

        @Override
        public Instant instant() {
            return now;
        }
    }

    /**
     * Lets time pass.
     *
     * @param time how much; below 0 the clock goes back
     */
    public void advance(Duration time) {
        clock.now = clock.now.plus(time);
    }

    /** {@return the clock of the gate, which {@link #advance} moves} */
    public Clock clock() {
        return clock;
    }

    /**
     * Puts a policy in place, or another in its place.
     *
     * @param json the document, as in {@code policies[]} of a policy file
     * @return the limiter of the policy
     * @throws io.sluicegate.SluicegateException if it cannot be read
     */
    public Limiter document(String json) {
        return gate.document(json);
    }

    /**
     * A limit in code.
     *
     * @param name its name
     * @param limit the limit
     * @return the limiter
     * @throws io.sluicegate.SluicegateException if it is not valid
     */
    public Limiter limit(String name, Limit limit) {
        return gate.limit(name, limit);
    }

    @Override
    public Limiter policy(String name) {
        return gate.policy(name);
    }

    @Override
    public void close() {
        gate.close();
    }
}
