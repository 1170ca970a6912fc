package io.sluicegate.lettuce;

import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.Limiter;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.json.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Decides what it reads, a line of JSON each: the program of this SDK for sdk/agree. */
public final class Agree {
    /** Longer than any reply takes, also on a machine with much to do. */
    private static final Duration DEADLINE = Duration.ofSeconds(5);
    private static final Duration UNLIMITED = Duration.of((1L << 53) - 1, ChronoUnit.MICROS);

    private Agree() {}

    /** The clock of the steps. */
    private static final class StepClock extends Clock {
        private volatile Instant now;

        void set(Map<?, ?> line) {
            now = Instant.EPOCH.plus(number(line, "now_us", 0), ChronoUnit.MICROS);
        }

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

    /** Reads steps until there are no more. */
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        StepClock clock = new StepClock();
        Map<?, ?> first = (Map<?, ?>) Json.read(in.readLine().getBytes(StandardCharsets.UTF_8));
        clock.set(first);
        LettucePort port = LettucePort.connect("redis://" + first.get("redis"));
        DirectGate.Builder builder = Sluicegate.direct(port).deadline(DEADLINE).clock(clock);
        if (first.containsKey("nodes")) {
            builder.nodes(number(first, "nodes", 1)).deadline(Duration.ofMillis(number(first, "deadline_ms", 0))).warmUp(false);
        }
        try (DirectGate gate = builder.build()) {
            hold(gate, port);
            out.println("{}");
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Map<?, ?> step = (Map<?, ?>) Json.read(line.getBytes(StandardCharsets.UTF_8));
                clock.set(step);
                out.println(answer(gate.policy((String) step.get("policy")), step));
            }
        }
    }

    /** Has the gate take all policies over now, as it does when one is first asked for. */
    private static void hold(DirectGate gate, RedisPort port) {
        try {
            byte[] command = "HKEYS".getBytes(StandardCharsets.US_ASCII);
            byte[] policies = "sg:{policies}".getBytes(StandardCharsets.US_ASCII);
            for (Object field : (List<?>) port.call(DEADLINE.toNanos(), command, policies)) {
                String name = new String((byte[]) field, StandardCharsets.UTF_8);
                if (!name.startsWith("#")) {
                    gate.policy(name).shared().peek("", 1);
                }
            }
        } catch (RedisPort.Failure | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static long number(Map<?, ?> step, String name, long otherwise) {
        return step.get(name) instanceof Long number ? number : otherwise;
    }

    private static String answer(Limiter limiter, Map<?, ?> step) {
        try {
            Decision decision = ask(limiter, step);
            return "{\"allowed\":" + decision.allowed() + ",\"granted\":" + decision.granted() + ",\"wait_us\":" + decision.waitUs() + ",\"limit\":" + decision.limit()
                + ",\"remaining\":" + decision.remaining() + ",\"retry_after_us\":"
                + (decision.retryAfterUs() == Decision.NEVER ? "null" : decision.retryAfterUs()) + ",\"reset_after_us\":" + decision.resetAfterUs()
                + ",\"rule\":" + Json.write(decision.rule()) + "}";
        } catch (SluicegateException e) {
            return "{\"error\":\"" + e.code().name().toLowerCase(Locale.ROOT) + "\"}";
        }
    }

    private static Decision ask(Limiter own, Map<?, ?> step) {
        Limiter limiter = step.get("key") == null ? own.shared() : own;
        String key = step.get("key") == null ? "" : (String) step.get("key");
        String id = (String) step.get("id");
        long cost = number(step, "cost", 1);
        long waitUs = number(step, "max_wait_us", -1);
        return switch ((String) step.get("op")) {
            case "check" -> limiter.check(key, cost);
            case "reserve" -> limiter.reserve(key, cost, waitUs < 0 ? UNLIMITED : Duration.of(waitUs, ChronoUnit.MICROS));
            case "at_most" -> limiter.atMost(key, cost);
            case "peek" -> limiter.peek(key, cost);
            case "refund" -> limiter.refund(key, cost);
            case "reset" -> limiter.reset(key);
            case "acquire" -> limiter.acquire(key, id, cost);
            case "release" -> limiter.release(key, id);
            case "renew" -> limiter.renew(key, id);
            default -> throw new IllegalArgumentException("unknown op");
        };
    }
}
