package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** A process that reaches Redis by one connection and not by others, as at its start: what Redis may grant, no share grants as well. */
class UnderWayTest {
    /** A Redis that grants the first request, late, and cannot be reached by others. */
    private static final class Port implements RedisPort {
        private final CountDownLatch asked = new CountDownLatch(1);
        private final CountDownLatch answers = new CountDownLatch(1);
        private final AtomicBoolean isFirst = new AtomicBoolean(true);

        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
            if (!new String(command[0], StandardCharsets.US_ASCII).equals("EVALSHA")) {
                return new byte[0];
            }
            if (!isFirst.getAndSet(false)) {
                throw new Failure("there is no connection", false, false);
            }
            asked.countDown();
            assertTrue(answers.await(20, TimeUnit.SECONDS));
            byte[] reply = new byte[27];
            reply[0] = 1;
            return reply;
        }

        @Override
        public void subscribe(String channel, Consumer<String> listener) {
            // Nothing is published.
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    @Test
    void what_is_under_way_is_no_reason_for_a_share() throws Exception {
        Port port = new Port();
        try (DirectGate gate = Sluicegate.direct(port).warmUp(false).deadline(Duration.ofSeconds(10)).build()) {
            Limiter limiter = gate.limit("mail", Limit.fixedWindow(20, Duration.ofDays(366)));
            CompletableFuture<Decision> late = CompletableFuture.supplyAsync(() -> limiter.check("k", 3));
            assertTrue(port.asked.await(20, TimeUnit.SECONDS));
            int admitted = 0;
            for (int check = 0; check < 25; check++) {
                Decision decision = limiter.check("k");
                assertEquals(Mode.LOCAL, decision.mode());
                admitted += decision.allowed() ? 1 : 0;
                assertTrue(decision.allowed() || decision.retryAfter().orElseThrow().equals(Duration.ofMillis(100)), decision.toString());
            }
            assertEquals(17, admitted);
            port.answers.countDown();
            assertEquals(Mode.STORE, late.get(20, TimeUnit.SECONDS).mode());
        }
    }
}
