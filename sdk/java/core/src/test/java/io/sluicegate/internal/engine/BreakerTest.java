package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class BreakerTest {
    private final Breaker breaker = new Breaker(() -> 200_000);

    @Test
    void it_opens_when_half_of_five_decisions_fail() {
        breaker.succeeded(1_000_000);
        breaker.succeeded(1_000_000);
        breaker.failed(1_100_000);
        breaker.failed(1_100_000);
        assertTrue(breaker.allows(1_100_000));
        breaker.failed(1_200_000);
        assertFalse(breaker.allows(1_200_000));
        assertFalse(breaker.allows(1_399_999));
    }

    @Test
    void one_probe_passes_and_its_success_closes() {
        for (int i = 0; i < 5; i++) {
            breaker.failed(1_000_000);
        }
        assertTrue(breaker.allows(1_200_000));
        assertFalse(breaker.allows(1_200_001));
        breaker.failed(1_200_001);
        assertTrue(breaker.allows(1_400_000));
        breaker.succeeded(1_400_000);
        assertTrue(breaker.allows(1_400_001));
        // All slots were cleared: four failures are not half of five decisions with that success.
        breaker.failed(1_400_002);
        breaker.failed(1_400_002);
        breaker.failed(1_400_002);
        assertTrue(breaker.allows(1_400_003));
        breaker.failed(1_400_002);
        assertFalse(breaker.allows(1_400_003));
    }

    @Test
    void a_clock_before_the_span_gives_a_probe() {
        for (int i = 0; i < 5; i++) {
            breaker.failed(1_000_000);
        }
        assertTrue(breaker.allows(900_000));
    }

    @Test
    void what_is_a_second_old_does_not_count() {
        for (int i = 0; i < 4; i++) {
            breaker.failed(1_000_000);
        }
        breaker.failed(2_000_000);
        assertTrue(breaker.allows(2_000_000));
    }
}
