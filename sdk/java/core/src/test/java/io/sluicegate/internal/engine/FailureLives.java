package io.sluicegate.internal.engine;

import io.sluicegate.Call;
import io.sluicegate.Carry;
import io.sluicegate.Decision;
import io.sluicegate.Overflow;
import io.sluicegate.RedisPort;
import io.sluicegate.SluicegateException;
import io.sluicegate.Verb;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.TestRedis;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
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
        private int requests;

        Port(RedisPort port) {
            this.port = port;
        }

        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
            requests += new String(command[0], java.nio.charset.StandardCharsets.US_ASCII).equals("EVALSHA") ? 1 : 0;
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
        int number = 0;
        for (String file : List.of("failure", "windows")) {
            Map<?, ?> all = (Map<?, ?>) Json.read(Checkout.bytes("spec/wire/" + file + ".json"));
            for (Object each : (List<?>) all.get("entries")) {
                if (isOfWindows((String) ((Map<?, ?>) each).get("record")) != file.equals("windows")) {
                    continue;
                }
                redis.command("FLUSHDB");
                String printed = live((Map<?, ?>) each, redisPort, redis);
                if (printed != null) {
                    wrong.add(file + " " + number + " " + printed);
                }
                number++;
            }
        }
        if (number != 39) {
            wrong.add(number + " lives");
        }
        return wrong;
    }

    private static final long DAY_US = 86_400_000_000L;
    private static final Rule DAY = Rules.fixedWindow("day", 4000, DAY_US, false);
    private static final Rule FAST = Rules.tokenBucket("fast", new Rules.Rate(10_000, 1_000_000), 10_000, 10_000, false);
    private static final Rule LOWERED = Rules.fixedWindow("day", 50, DAY_US, false);

    /**
     * Usage of 3,000 of 4,000 a day is there when the limit is lowered to 50 for an hour, by an override. Two programs see the key in that hour
     * only, one of them by rules of a later version, and the hour ends while Redis is away. Returns for each what passes then.
     */
    public static List<Long> passedAfterALoweredLimit(RedisPort redisPort, TestRedis redis) throws InterruptedException {
        List<Long> passed = new ArrayList<>();
        passed.addAll(lowered(List.of(DAY), List.of(LOWERED), redisPort, redis));
        passed.addAll(lowered(List.of(FAST, DAY), List.of(LOWERED, FAST), redisPort, redis));
        passed.addAll(lowered(List.of(DAY), List.of(Rules.slidingLog("day", 50, DAY_US)), redisPort, redis));
        return passed;
    }

    private static List<Long> lowered(List<Rule> rules, List<Rule> lowered, RedisPort redisPort, TestRedis redis) throws InterruptedException {
        redis.command("FLUSHDB");
        ManualClock clock = new ManualClock();
        clock.now = Instant.parse("2026-03-01T00:00:00Z");
        Map<String, Object> record = new TreeMap<>(rulesOf(rules));
        record.putAll(Map.of("record", 1L, "app", "shop", "apps", List.of("*"), "on_store_failure", "local", "overflow", Map.of("kind", "reject"),
            "version", 1L, "since_ms", clock.millis()));
        publish(record, redis);
        Port port = new Port(redisPort);
        Engine first = engine(port, clock);
        Engine old = engine(port, clock);
        check(old, "another key", 1, "store");
        check(first, "k", 3000, "store");
        clock.now = clock.now.plusSeconds(60);
        Map<String, Object> override = new TreeMap<>(rulesOf(lowered));
        override.putAll(Map.of("key", "k", "until_ms", clock.millis() + 3_600_000));
        record.putAll(Map.of("version", 2L, "since_ms", clock.millis(), "overrides", List.of(override)));
        publish(record, redis);
        List<Engine> engines = List.of(engine(port, clock), old);
        for (Engine each : engines) {
            Decision refused = check(each, "k", 1, "store");
            if (refused.allowed() || refused.limit() != 50 || refused.remaining() != 0) {
                throw new AssertionError(refused.toString());
            }
        }
        port.away = true;
        clock.now = clock.now.plusSeconds(3600);
        List<Long> passed = new ArrayList<>();
        for (Engine each : engines) {
            long permits = 0;
            for (int i = 0; i < 40; i++) {
                permits += check(each, "k", 100, "local").granted();
            }
            passed.add(permits);
        }
        return passed;
    }

    private static Engine engine(Port port, Clock clock) {
        return new Engine(port, new Options("shop", 1L, 10_000_000_000L, clock, false), false);
    }

    private static Decision check(Engine engine, String key, long cost, String mode) throws InterruptedException {
        Decision decision = engine.published().decide(new Call("p", key, Verb.CHECK, cost, Numbers.NO_WAIT_GIVEN, null));
        if (!decision.mode().name().equalsIgnoreCase(mode)) {
            throw new AssertionError(decision.toString());
        }
        return decision;
    }

    private static Map<String, Object> rulesOf(List<Rule> rules) {
        RuleSet set = new RuleSet(Carry.USAGE, rules);
        return Map.of("blob", Base64.getUrlEncoder().withoutPadding().encodeToString(set.bytes()), "life_ms", Math.max(set.lifeMs(), 1),
            "each", rules.stream().map(rule -> Map.of("name", rule.name(), "limit", rule.limit())).toList());
    }

    private static void publish(Map<String, Object> record, TestRedis redis) {
        redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "#clock", "client", "p", Json.write(record));
    }

    private static boolean isOfWindows(String record) {
        List<Rule> rules = RecordReader.read("p", record.getBytes(StandardCharsets.UTF_8)).rules().rules();
        return rules.get(0).code() == 5 || rules.stream().anyMatch(rule -> rule.code() >= 6 && rule.code() <= 8);
    }

    private static String live(Map<?, ?> steps, RedisPort redisPort, TestRedis redis) throws InterruptedException {
        redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "#clock", "client", "p",
            (String) steps.get("record"));
        ManualClock clock = new ManualClock();
        Port port = new Port(redisPort);
        Engine engine = new Engine(port, new Options("shop", (Long) steps.get("nodes"), 10_000_000_000L, clock, false), false);
        int place = 0;
        for (Object each : (List<?>) steps.get("steps")) {
            Map<?, ?> step = (Map<?, ?>) each;
            long at = Long.parseLong(step.get("at_us").toString());
            clock.now = Instant.ofEpochSecond(at / 1_000_000, at % 1_000_000 * 1000);
            // The policy is known before Redis goes.
            port.away = place > 0 && "away".equals(step.get("redis"));
            String wanted = wanted((Map<?, ?>) step.get("expect"));
            port.requests = 0;
            String answered = decide(engine, step);
            // Before the first call of a script its rules are put in place, and the script is loaded.
            String requested = place == 0 || step.get("asked") == null ? "" : " asked " + port.requests;
            answered += requested;
            wanted += requested.isEmpty() ? "" : " asked " + step.get("asked");
            if (!answered.equals(wanted)) {
                return "step " + place + " " + steps.get("record") + " n " + steps.get("nodes") + " " + step.get("op") + " "
                    + step.get("redis") + " wanted " + wanted + " said " + answered;
            }
            place++;
        }
        return null;
    }

    private static String decide(Engine engine, Map<?, ?> step) throws InterruptedException {
        Verb verb = Verb.valueOf(((String) step.get("op")).toUpperCase(Locale.ROOT));
        long cost = step.get("cost") instanceof Long given ? given : 1;
        long maxWait = step.get("max_wait_us") instanceof Long given ? given
            : verb == Verb.RESERVE ? Numbers.SPAN_MAX_US : Numbers.NO_WAIT_GIVEN;
        try {
            Decision d = engine.published().decide(new Call("p", (String) step.get("key"), verb, cost, maxWait, (String) step.get("id")));
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
