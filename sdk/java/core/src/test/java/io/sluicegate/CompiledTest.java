package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.testing.TestServer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The rules of a limit in code are those that a server makes of the same document, to the byte. */
class CompiledTest {
    private static final int POLICIES = 400;
    private static final String[] UNITS = {"us", "ms", "s", "m", "h", "d"};
    private static final String[] ZONES = {"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"};

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
        return upTo(random.nextBoolean() ? 4000 : 1L << 32) + "/" + duration();
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
                .append(",\"carry\":\"").append(carries[i % 3]).append("\"}");
        }
        return out.append("]}").toString();
    }

    @Test
    void rules_are_those_of_the_server(@TempDir Path folder) throws IOException {
        System.out.println("CompiledTest: SEED=" + seed);
        String documents = policies();
        Path file = Files.writeString(folder.resolve("policies.json"), documents);
        Map<String, Policy> compiled = new HashMap<>();
        RecordReader.file(TestServer.run("policies", "compile", file.toString())).forEach(policy -> compiled.put(policy.name(), policy));
        for (Object each : (List<?>) ((Map<?, ?>) Json.read(documents)).get("policies")) {
            Map<?, ?> document = (Map<?, ?>) each;
            String name = (String) document.get("name");
            LimitTest.same(name, compiled.remove(name).rules(), DocumentRules.limit(document).policy(name).rules());
        }
        assertEquals(Map.of(), compiled);
    }
}
