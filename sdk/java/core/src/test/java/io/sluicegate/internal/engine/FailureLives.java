package io.sluicegate.internal.engine;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.Overflow;
import io.sluicegate.RedisPort;
import io.sluicegate.SluicegateException;
import io.sluicegate.Verb;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.TestRedis;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Runs the lives of spec/wire/failure.json that a server decides alike, and those of windows, of which a program counts more:
 * spec/wire/windows.json.
 */
public final class FailureLives {
    private FailureLives() {}

    private static final class ManualClock extends Clock {
        private Instant now = Instant.EPOCH;

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

    /** A port whose Redis can go away, and which counts the calls of the script. */
    private static final class Port implements RedisPort {
        private final RedisPort port;
        private boolean away;
        private int asked;

        Port(RedisPort port) {
            this.port = port;
        }

        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
            asked += new String(command[0], java.nio.charset.StandardCharsets.US_ASCII).equals("EVALSHA") ? 1 : 0;
            if (away) {
                throw new Failure("there is no connection", false, false);
            }
            return port.call(timeoutNanos, command);
        }

        @Override
        public void subscribe(String channel, Consumer<String> listener) {
            port.subscribe(channel, listener);
        }

        @Override
        public void close() {
            // The test closes it.
        }
    }

    /** Runs all lives and returns what differed. */
    public static List<String> run(RedisPort redisPort, TestRedis redis) throws InterruptedException {
        List<String> wrong = new ArrayList<>();
        int life = 0;
        for (String file : List.of("failure", "windows")) {
            Map<?, ?> all = (Map<?, ?>) Json.read(Checkout.bytes("spec/wire/" + file + ".json"));
            for (Object each : (List<?>) all.get("entries")) {
                if (isOfWindows((String) ((Map<?, ?>) each).get("record")) != file.equals("windows")) {
                    continue;
                }
                redis.command("FLUSHDB");
                String said = live((Map<?, ?>) each, redisPort, redis);
                if (said != null) {
                    wrong.add(file + " " + life + " " + said);
                }
                life++;
            }
        }
        if (life != 39) {
            wrong.add(life + " lives");
        }
        return wrong;
    }

    private static boolean isOfWindows(String record) {
        List<Rule> rules = RecordReader.read("p", record.getBytes(StandardCharsets.UTF_8)).rules().rules();
        return rules.get(0).code() == 5 || rules.stream().anyMatch(rule -> rule.code() >= 6 && rule.code() <= 8);
    }

    private static String live(Map<?, ?> life, RedisPort redisPort, TestRedis redis) throws InterruptedException {
        redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "#clock", "client", "p",
            (String) life.get("record"));
        ManualClock clock = new ManualClock();
        Port port = new Port(redisPort);
        Engine engine = new Engine(port, new Options("shop", (Long) life.get("nodes"), 10_000_000_000L, clock, false), false);
        int place = 0;
        for (Object each : (List<?>) life.get("steps")) {
            Map<?, ?> step = (Map<?, ?>) each;
            long at = Long.parseLong(step.get("at_us").toString());
            clock.now = Instant.ofEpochSecond(at / 1_000_000, at % 1_000_000 * 1000);
            // The policy is known before Redis goes.
            port.away = place > 0 && "away".equals(step.get("redis"));
            String wanted = wanted((Map<?, ?>) step.get("expect"));
            port.asked = 0;
            String said = ask(engine, step);
            // Before the first call of a script its rules are put in place, and the script is loaded.
            String asked = place == 0 || step.get("asked") == null ? "" : " asked " + port.asked;
            said += asked;
            wanted += asked.isEmpty() ? "" : " asked " + step.get("asked");
            if (!said.equals(wanted)) {
                return "step " + place + " " + life.get("record") + " n " + life.get("nodes") + " " + step.get("op") + " "
                    + step.get("redis") + " wanted " + wanted + " said " + said;
            }
            place++;
        }
        return null;
    }

    private static String ask(Engine engine, Map<?, ?> step) throws InterruptedException {
        Verb verb = Verb.valueOf(((String) step.get("op")).toUpperCase(Locale.ROOT));
        long cost = step.get("cost") instanceof Long given ? given : 1;
        long maxWait = step.get("max_wait_us") instanceof Long given ? given
            : verb == Verb.RESERVE ? Numbers.SPAN_MAX_US : Numbers.NO_WAIT_GIVEN;
        try {
            Decision d = engine.decide(new Call("p", (String) step.get("key"), verb, cost, maxWait, (String) step.get("id")));
            boolean passed = d.allowed() && !(d.overflow() instanceof Overflow.Shadow);
            return passed + " " + d.granted() + " " + d.waitUs() + " " + d.limit() + " " + d.remaining() + " " + d.resetAfterUs() + " "
                + d.rule() + " " + d.mode().name().toLowerCase(Locale.ROOT) + way(d.overflow());
        } catch (SluicegateException e) {
            return e.code().name().toLowerCase(Locale.ROOT);
        }
    }

    private static String wanted(Map<?, ?> e) {
        return e.get("error") != null ? e.get("error").toString() : e.get("allowed") + " " + e.get("granted") + " " + e.get("wait_us") + " "
            + e.get("limit") + " " + e.get("remaining") + " " + e.get("reset_after_us") + " " + e.get("rule") + " " + e.get("mode")
            + (e.get("way") == null ? "" : " " + e.get("way"));
    }

    private static String way(Overflow overflow) {
        return overflow == null ? ""
            : overflow instanceof Overflow.Shadow ? " shadowed"
            : overflow instanceof Overflow.Divert ? " diverted"
            : " degraded";
    }
}
