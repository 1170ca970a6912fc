package io.sluicegate.internal.policy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** The rules that this SDK makes of a document are those that a server publishes, to the byte. */
class CompiledTest {
    private static final int POLICIES = 400;
    private static final String[] UNITS = {"us", "ms", "s", "sec", "second", "m", "min", "minute", "h", "hour", "d", "day"};
    private static final String[] ZONES = {"UTC", "Europe/Berlin", "america/new_york", "EST", "Australia/Lord_Howe", "Asia/Kolkata"};

    private final long seed = System.getenv("SEED") != null ? Long.parseLong(System.getenv("SEED")) : new Random().nextInt(1_000_000);
    private final Random random = new Random(seed);

    private long upTo(long most) {
        double skewed = Math.pow(random.nextDouble(), 4);
        return 1 + Math.min((long) (skewed * most), most - 1);
    }

    private String duration() {
        String unit = UNITS[random.nextInt(UNITS.length)];
        long most = switch (unit.charAt(0)) {
            case 'u' -> 50_000_000L;
            case 'd' -> 366;
            case 'h' -> 8_000;
            default -> unit.equals("ms") ? 100_000_000L : 400_000;
        };
        return upTo(most) + unit;
    }

    private String rate() {
        String[] bytes = {"", "", "", "B", "kB", "KiB", "MB", "MiB"};
        return upTo(4000) + bytes[random.nextInt(bytes.length)] + "/" + duration();
    }

    private String algorithm(int place) {
        long limit = upTo(1L << 32);
        return switch (random.nextInt(9)) {
            case 0 -> "\"token_bucket\":{\"rate\":\"" + rate() + "\",\"burst\":" + limit + (random.nextBoolean() ? ",\"refill\":\"interval\"" : "")
                + (random.nextBoolean() ? ",\"initial\":" + limit / 3 : "") + "}";
            case 1 -> "\"leaky_bucket\":{\"rate\":\"" + rate() + "\",\"burst\":" + limit
                + (random.nextBoolean() ? ",\"delay\":" + (random.nextBoolean() ? "\"none\"" : limit / 2) : "") + "}";
            case 2 -> "\"smooth_bursty\":{\"rate\":\"" + rate() + "\",\"max_burst\":\"" + duration() + "\"}";
            case 3 -> "\"smooth_warmup\":{\"rate\":\"" + rate() + "\",\"warmup\":\"" + duration() + "\",\"cold_factor\":"
                + (1 + upTo(998)) + "." + upTo(99) + "}";
            case 4 -> "\"fixed_window\":{\"limit\":" + limit + ",\"window\":\"" + duration() + "\",\"align\":\""
                + (random.nextBoolean() ? "epoch" : "first") + "\"}";
            case 5 -> "\"fixed_window\":{\"limit\":" + limit + ",\"calendar\":\""
                + new String[] {"day", "week", "month", "year"}[random.nextInt(4)] + "\",\"time_zone\":\"" + ZONES[random.nextInt(ZONES.length)] + "\"}";
            case 6 -> "\"sliding_window\":{\"limit\":" + limit + ",\"window\":\"" + upTo(100_000) + "ms\",\"buckets\":" + upTo(100) + "}";
            case 7 -> "\"sliding_counter\":{\"limit\":" + Math.min(limit, (1L << 32) - 1) + ",\"window\":\"" + duration() + "\"}";
            default -> place > 0 ? "\"sliding_log\":{\"limit\":" + upTo(200) + ",\"window\":\"" + duration() + "\"}"
                : "\"concurrency\":{\"limit\":" + upTo(200) + ",\"ttl\":\"" + duration() + "\"}";
        };
    }

    private String rules() {
        int count = 1 + random.nextInt(3);
        StringBuilder rules = new StringBuilder("[");
        for (int place = 0; place < count; place++) {
            rules.append(place > 0 ? "," : "").append("{").append(count > 1 ? "\"name\":\"r" + place + "\"," : "").append(algorithm(place)).append("}");
        }
        return rules.append("]").toString();
    }

    private String policies() {
        StringBuilder out = new StringBuilder("{\"policies\":[");
        String[] carries = {"usage", "proportional", "reset"};
        for (int i = 0; i < POLICIES; i++) {
            out.append(i > 0 ? "," : "").append("{\"name\":\"p").append(i).append("\",\"rules\":").append(rules())
                .append(",\"overrides\":[{\"key\":\"k\",\"rules\":").append(rules()).append("}],\"carry\":\"").append(carries[i % 3]).append("\"}");
        }
        return out.append("]}").toString();
    }

    @Test
    void rules_are_those_of_the_server() {
        System.out.println("CompiledTest: SEED=" + seed);
        try (TestRedis redis = TestRedis.start(); TestServer server = TestServer.start(policies(), redis.uri())) {
            assertNotNull(server.http());
            List<?> hash = List.of();
            for (int tries = 0; hash.isEmpty() && tries < 200; tries++) {
                TestRedis.pause(50);
                hash = (List<?>) redis.command("HGETALL", "sg:{policies}");
            }
            int compared = 0;
            for (int place = 0; place < hash.size(); place += 2) {
                String name = (String) hash.get(place);
                if (!name.startsWith("#")) {
                    compare(name, (String) hash.get(place + 1));
                    compared++;
                }
            }
            assertEquals(POLICIES, compared);
        }
    }

    private static void compare(String name, String value) {
        byte[] bytes = value.getBytes(StandardCharsets.ISO_8859_1);
        Policy read = PolicyReader.published(name, bytes);
        int at = value.indexOf("\"compiled\"");
        assertTrue(at > 0, "compiled of " + name);
        Policy own = PolicyReader.published(name, value.replaceFirst("\"compiled\"", "\"ignored\"").getBytes(StandardCharsets.ISO_8859_1));
        Map<?, ?> compiled = (Map<?, ?>) ((Map<?, ?>) Json.read(bytes)).get("compiled");
        same(name, own.rules(), read.rules(), (Map<?, ?>) compiled.get("rules"));
        same(name, own.rulesOf(Key.of("k"), 0), read.rulesOf(Key.of("k"), 0), (Map<?, ?>) ((List<?>) compiled.get("overrides")).get(0));
    }

    private static void same(String name, RuleSet own, RuleSet read, Map<?, ?> compiled) {
        assertEquals(compiled.get("blob"), Base64.getUrlEncoder().withoutPadding().encodeToString(own.bytes()), name);
        assertEquals(compiled.get("life_ms").toString(), Long.toString(own.lifeMs()), name + " life_ms");
        for (int place = 0; place < own.rules().size(); place++) {
            Rule mine = own.rules().get(place);
            Rule theirs = read.rules().get(place);
            assertEquals(theirs.name(), mine.name(), name);
            assertEquals(theirs.limit(), mine.limit(), name + " limit");
            assertEquals(theirs.windowUs(), mine.windowUs(), name + " window_us");
            assertEquals(theirs.calendar(), mine.calendar(), name + " calendar");
        }
    }
}
