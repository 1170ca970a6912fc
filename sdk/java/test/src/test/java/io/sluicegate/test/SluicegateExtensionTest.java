package io.sluicegate.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import java.time.Duration;
import java.time.Instant;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(SluicegateExtension.class)
class SluicegateExtensionTest {
    private TestGate before;

    @BeforeEach
    void prepare(TestGate gate) {
        before = gate;
        gate.policy("orders", Limit.fixedWindow(1, Duration.ofMinutes(1)));
    }

    @RepeatedTest(2)
    void each_test_has_a_gate_of_its_own(TestGate gate) {
        assertSame(before, gate);
        assertTrue(gate.policy("orders").check("alice").allowed());
        assertFalse(gate.policy("orders").check("alice").allowed());
        assertTrue(gate.policy("orders").check("bob").allowed());
    }

    @Test
    void time_stands_still_until_it_is_moved(TestGate gate) {
        Limiter mail = gate.limit("mail", Limit.tokenBucket(1, Duration.ofSeconds(10)));
        assertTrue(mail.check("a").allowed());
        assertEquals(Duration.ofSeconds(10), mail.check("a").retryAfter().orElseThrow());
        gate.advance(Duration.ofSeconds(9));
        assertEquals(Duration.ofSeconds(1), mail.check("a").retryAfter().orElseThrow());
        gate.advance(Duration.ofSeconds(1));
        assertTrue(mail.check("a").allowed());
        assertEquals(Instant.parse("2026-01-01T00:00:10Z"), gate.clock().instant());
    }
}
