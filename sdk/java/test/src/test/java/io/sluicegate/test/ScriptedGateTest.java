package io.sluicegate.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Charged;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class ScriptedGateTest {
    @Test
    void a_script_answers_in_its_order() {
        SluicegateException gone = new SluicegateException(ErrorCode.PERHAPS_CHARGED, "gone");
        try (ScriptedGate gate = new ScriptedGate().allow(10, 9).refuse(Duration.ofMillis(1500)).fail(gone).refuse(null).allow(1, 0)) {
            Limiter orders = gate.policy("orders");
            Decision allowed = orders.check("alice", 3);
            assertTrue(allowed.allowed());
            assertEquals(3, allowed.granted());
            assertEquals(10, allowed.limit());
            assertEquals(9, allowed.remaining());
            Decision refused = orders.check("alice");
            assertFalse(refused.allowed());
            assertEquals(1_500_000, refused.retryAfterUs());
            assertSame(gone, assertThrows(SluicegateException.class, () -> orders.refund("alice", 1)));
            assertEquals(Charged.UNKNOWN, gone.charged());
            assertEquals(Decision.NEVER, orders.check("alice").retryAfterUs());
            assertEquals(1, gate.left());
            assertThrows(SluicegateException.class, () -> orders.check("alice", 0));
            assertTrue(orders.checkAsync("alice").join().allowed());
            assertThrows(IllegalStateException.class, () -> orders.check("alice"));
            assertThrows(NullPointerException.class, () -> gate.fail(null));
        }
    }
}
