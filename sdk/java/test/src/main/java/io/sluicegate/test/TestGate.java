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
     * Takes over the policies of a file of records; one that is there already is replaced.
     *
     * @param records the text of the file, which {@code sluicegate policies compile} makes of documents
     * @return this gate
     * @throws io.sluicegate.SluicegateException if the file cannot be read; then nothing is taken over
     */
    public TestGate compiled(String records) {
        gate.compiled(records);
        return this;
    }

    /**
     * Makes a policy of a limit; one of that name is replaced.
     *
     * @param name its name
     * @param limit its rules
     * @return the limiter of the policy
     * @throws io.sluicegate.SluicegateException if it is not valid
     */
    public Limiter policy(String name, Limit limit) {
        return gate.policy(name, limit);
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
