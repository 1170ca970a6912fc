package io.sluicegate.test;

import io.sluicegate.InMemoryGate;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;

/**
 * A gate in memory whose time stands still until a test moves it. It decides as one without Redis does.
 */
public final class TestGate extends InMemoryGate {
    private static final Instant START = Instant.parse("2026-01-01T00:00:00Z");

    private final StandingClock clock;

    /** Makes a gate without policies, at the beginning of 2026. */
    public TestGate() {
        this(new StandingClock());
    }

    private TestGate(StandingClock clock) {
        super(clock);
        this.clock = clock;
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

    @Override
    public TestGate compiled(String records) {
        super.compiled(records);
        return this;
    }
}
