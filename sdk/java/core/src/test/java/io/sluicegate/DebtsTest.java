package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.LogLines;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The debts of permits that were admitted without Redis. */
class DebtsTest {
    /** A Redis that holds the policy {@code p}, decides nothing at first, and then counts the debts that it is to charge. */
    private static final class Port implements RedisPort {
        private final Map<String, String> hash = new ConcurrentHashMap<>(Map.of("#format", "1", "#revision", "1", "p", Records.of("fixed-10")));
        private final AtomicLong charged = new AtomicLong();
        private volatile boolean decides;
        private volatile Consumer<String> listener = message -> { };

        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure {
            return switch (new String(command[0], StandardCharsets.US_ASCII)) {
                case "HMGET" -> fields(command);
                case "EVALSHA" -> decision(command[command.length - 1]);
                default -> new byte[0];
            };
        }

        private List<byte[]> fields(byte[][] command) {
            List<byte[]> values = new ArrayList<>();
            for (byte[] name : Arrays.copyOfRange(command, 2, command.length)) {
                String value = hash.get(new String(name, StandardCharsets.UTF_8));
                values.add(value == null ? null : value.getBytes(StandardCharsets.UTF_8));
            }
            return values;
        }

        // A request after a debt begins with 12; a debt's permits are 9 bytes behind that. All of them are charged.
        private byte[] decision(byte[] request) throws Failure {
            if (!decides) {
                throw new Failure("there is no connection", false, false);
            }
            byte[] reply = new byte[request[0] == 12 ? 31 : 27];
            reply[0] = 1;
            if (request[0] == 12) {
                charged.addAndGet(request[9]);
                reply[27] = request[9];
            }
            reply[13] = (byte) Math.max(10 - charged.get(), 0);
            return reply;
        }

        void publishes(String revision, String record) {
            if (record == null) {
                hash.remove("p");
            } else {
                hash.put("p", record);
            }
            hash.put("#revision", revision);
            listener.accept(revision);
        }

        @Override
        public void subscribe(String channel, Consumer<String> listener) {
            this.listener = listener;
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    private static long chargedAfter(String record, ErrorCode then) {
        Port port = new Port();
        try (DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).build()) {
            Limiter limiter = gate.policy("p");
            for (int check = 0; check < 3; check++) {
                assertEquals(Mode.LOCAL, limiter.check("k").mode());
            }
            port.publishes("2", record);
            TestRedis.await("the policy goes", () -> {
                try {
                    limiter.peek("k", 1);
                    return false;
                } catch (SluicegateException e) {
                    return e.code() == then;
                }
            });
            port.decides = true;
        }
        return port.charged.get();
    }

    @Test
    void a_payment_is_known_in_the_next_outage() {
        Port port = new Port();
        try (DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build()) {
            Limiter limiter = gate.policy("p");
            for (int check = 0; check < 7; check++) {
                assertEquals(Mode.LOCAL, limiter.check("k").mode());
            }
            port.decides = true;
            TestRedis.await("the debt is charged", () -> port.charged.get() == 7);
            TestRedis.await("nothing is owed", () -> !gate.isDegraded());
            port.decides = false;
            int passed = 0;
            while (passed < 10 && limiter.check("k").allowed()) {
                passed++;
            }
            assertEquals(3, passed);
        }
    }

    @Test
    void a_gate_that_is_closed_decides_nothing() {
        Port port = new Port();
        port.decides = true;
        DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build();
        Limiter limiter = gate.policy("p");
        assertEquals(Mode.STORE, limiter.check("k").mode());
        gate.close();
        port.decides = false;
        Limiter own = gate.limit("own", Limit.tokenBucket(1, Duration.ofSeconds(1)));
        for (Limiter each : List.of(limiter, own)) {
            SluicegateException refused = assertThrows(SluicegateException.class, () -> each.check("other"));
            assertEquals(ErrorCode.NOT_CHARGED, refused.code());
            assertEquals("store: the gate is closed; nothing was charged", refused.getMessage());
        }
    }

    @Test
    void a_policy_of_a_later_version_leaves_its_debts_behind() {
        assertEquals(3, chargedAfter(Records.of("fixed-10", "record", 2L), ErrorCode.UNREADABLE_POLICY));
    }

    @Test
    void a_record_of_a_later_version_is_logged_soon_after_a_damaged_one() {
        Port port = new Port();
        port.decides = true;
        try (LogLines log = new LogLines(); DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build()) {
            assertEquals(Mode.STORE, gate.policy("p").check("k").mode());
            port.publishes("2", "?");
            TestRedis.await("the damaged one is logged", () -> log.with("`p` cannot be read: not JSON").size() == 1);
            port.publishes("3", Records.of("fixed-10", "record", 2L));
            TestRedis.await("the later one is logged", () -> log.with("`p` cannot be read: record: `2` is of a later version").size() == 1);
        }
    }

    @Test
    void a_record_that_cannot_be_read_is_in_health_and_log_until_it_can() {
        Port port = new Port();
        port.decides = true;
        port.hash.put("good", Records.of("fixed-10"));
        try (LogLines log = new LogLines(); DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build()) {
            assertEquals(Mode.STORE, gate.policy("good").check("k").mode());
            assertEquals(Mode.STORE, gate.policy("p").check("k").mode());
            assertEquals(GateHealth.State.UP, gate.health().state());
            port.publishes("2", "?");
            TestRedis.await("the health has it", () -> gate.health().state() == GateHealth.State.DEGRADED);
            GateHealth held = gate.health();
            assertTrue(held.cause().startsWith("policy `p` cannot be read: not JSON"), held.cause());
            assertEquals("Redis decides by the policies that were read before", held.decisions());
            port.publishes("3", Records.of("fixed-10", "record", 2L));
            TestRedis.await("nothing decides", () -> gate.health().decisions().equals("requests by it get no decision"));
            assertEquals(GateHealth.State.DEGRADED, gate.health().state());
            assertTrue(log.with("can be read again").isEmpty());
            port.publishes("4", Records.of("fixed-10"));
            TestRedis.await("it is over", () -> gate.health().state() == GateHealth.State.UP);
            TestRedis.await("the log has the end", () -> log.with("INFO the policies that requests name can be read again in the Redis at").size() == 1);
        }
    }

    @Test
    void a_field_beside_the_policies_is_no_policy() {
        Port port = new Port();
        port.decides = true;
        try (DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build()) {
            assertEquals(Mode.STORE, gate.policy("p").check("k").mode());
            for (String name : List.of("#format", "#revision", "P", "")) {
                SluicegateException refused = assertThrows(SluicegateException.class, () -> gate.policy(name).check("k"));
                assertEquals(ErrorCode.UNKNOWN_POLICY, refused.code(), name);
            }
            assertEquals(GateHealth.State.UP, gate.health().state());
        }
    }

    @Test
    void a_policy_that_is_gone_takes_its_debts_along() {
        assertEquals(0, chargedAfter(null, ErrorCode.UNKNOWN_POLICY));
    }
}
