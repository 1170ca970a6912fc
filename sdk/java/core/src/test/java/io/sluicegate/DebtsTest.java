package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The debts of permits that were admitted without Redis, after their policy was deleted. */
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
        try (DirectGate gate = Sluicegate.direct(port).build()) {
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
    void a_policy_of_a_later_version_leaves_its_debts_behind() {
        assertEquals(3, chargedAfter(Records.of("fixed-10", "record", 2L), ErrorCode.UNREADABLE_POLICY));
    }

    @Test
    void a_policy_that_is_gone_takes_its_debts_along() {
        assertEquals(0, chargedAfter(null, ErrorCode.UNKNOWN_POLICY));
    }
}
