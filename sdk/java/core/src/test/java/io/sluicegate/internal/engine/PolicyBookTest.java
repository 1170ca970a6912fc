package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.internal.json.Json;
import io.sluicegate.testing.Checkout;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class PolicyBookTest {
    @TestFactory
    Stream<DynamicTest> policies_are_followed_as_the_lives_say() {
        List<?> lives = (List<?>) Json.read(Checkout.bytes("spec/vectors/redis-policies.json"));
        return lives.stream().map(each -> (Map<?, ?>) each)
            .map(life -> DynamicTest.dynamicTest((String) life.get("name"), () -> live((List<?>) life.get("steps"))));
    }

    private static void live(List<?> steps) {
        PolicyBook book = new PolicyBook((name, problem) -> { });
        Map<String, byte[]> hash = new HashMap<>();
        int place = 0;
        for (Object each : steps) {
            Map<?, ?> step = (Map<?, ?>) each;
            if (step.get("hash") != null) {
                hash = fields((Map<?, ?>) step.get("hash"));
            }
            if (step.get("op").equals("look")) {
                book.look(hash, null, false, 1);
            } else if (step.get("op").equals("hear") && isNews((String) step.get("message"), book)) {
                book.look(hash, null, true, 1);
            }
            if (step.get("holds") != null) {
                assertEquals(holds((Map<?, ?>) step.get("holds")), book.revision() + " " + book.versions(), "step " + place);
            }
            place++;
        }
    }

    private static boolean isNews(String message, PolicyBook book) {
        return message.matches("[0-9]{1,16}") && Long.parseLong(message) != book.revision();
    }

    private static String holds(Map<?, ?> holds) {
        Map<String, Long> versions = new TreeMap<>();
        ((Map<?, ?>) holds.get("policies")).forEach((name, version) -> versions.put((String) name, Long.parseLong(version.toString())));
        Object revision = holds.get("revision");
        return (revision == null ? "-1" : revision) + " " + versions;
    }

    private static Map<String, byte[]> fields(Map<?, ?> hash) {
        Map<String, byte[]> fields = new HashMap<>();
        hash.forEach((name, value) ->
            fields.put((String) name, (value instanceof String text ? text : write(value)).getBytes(StandardCharsets.UTF_8)));
        return fields;
    }

    private static long instantAfter(PolicyBook book, int revision, int version, String since, long nowMs) {
        String value = "{\"version\":" + version + ",\"state\":\"active\",\"app\":\"\"" + since
            + ",\"document\":{\"name\":\"p\",\"rules\":[{\"fixed_window\":{\"limit\":" + version + ",\"window\":\"1m\"}}]}}";
        Map<String, byte[]> hash = new HashMap<>();
        Map.of("#format", "1", "#revision", Integer.toString(revision), "p", value)
            .forEach((name, text) -> hash.put(name, text.getBytes(StandardCharsets.UTF_8)));
        book.look(hash, null, false, nowMs);
        return book.get("p").takenOverMs();
    }

    @Test
    void a_version_is_of_the_instant_that_the_server_says() {
        PolicyBook book = new PolicyBook((name, problem) -> { });
        assertEquals(5_000, instantAfter(book, 1, 1, ",\"since_ms\":5000", 900_000));
        assertEquals(7_000, instantAfter(book, 2, 2, ",\"since_ms\":7000", 900_000));
        // An earlier instant than that of another version before it, and no earlier one by the same version later.
        assertEquals(7_001, instantAfter(book, 3, 3, ",\"since_ms\":6000", 900_000));
        assertEquals(7_001, instantAfter(book, 4, 3, ",\"since_ms\":6000", 900_000));
        assertEquals(0, instantAfter(new PolicyBook((name, problem) -> { }), 1, 1, ",\"since_ms\":0", 900_000));
    }

    @Test
    void a_version_that_is_held_keeps_its_instant_whatever_is_said_later() {
        PolicyBook book = new PolicyBook((name, problem) -> { });
        assertEquals(5_000, instantAfter(book, 1, 1, ",\"since_ms\":5000", 900_000));
        assertEquals(5_000, instantAfter(book, 2, 1, ",\"since_ms\":4000", 900_000));
        assertEquals(5_000, instantAfter(book, 3, 1, "", 900_000));
        assertEquals(5_001, instantAfter(book, 4, 2, ",\"since_ms\":4000", 900_000));
        // It is put back: taken over anew.
        assertEquals(5_002, instantAfter(book, 5, 1, ",\"since_ms\":5000", 900_000));
    }

    @Test
    void without_a_number_a_version_is_of_the_programs_own_instant() {
        for (String since : List.of("", ",\"since_ms\":-1", ",\"since_ms\":1.5", ",\"since_ms\":\"5\"", ",\"since_ms\":null",
            ",\"since_ms\":9007199254740992")) {
            PolicyBook book = new PolicyBook((name, problem) -> { });
            assertEquals(900, instantAfter(book, 1, 1, since, 900), since);
            assertEquals(901, instantAfter(book, 2, 2, since, 800), since);
            // A version that is held keeps its instant, also when a server says another one at last.
            assertEquals(901, instantAfter(book, 3, 2, ",\"since_ms\":600", 800), since);
            assertEquals(901, instantAfter(book, 4, 2, since, 800), since);
        }
        assertEquals((1L << 53) - 1, instantAfter(new PolicyBook((name, problem) -> { }), 1, 1, ",\"since_ms\":9007199254740991", 1));
    }

    /** Writes JSON. */
    static String write(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringBuilder out = new StringBuilder("{");
            map.forEach((name, each) -> out.append(out.length() > 1 ? "," : "").append(Json.quote((String) name)).append(":").append(write(each)));
            return out.append("}").toString();
        }
        if (value instanceof List<?> list) {
            StringBuilder out = new StringBuilder("[");
            list.forEach(each -> out.append(out.length() > 1 ? "," : "").append(write(each)));
            return out.append("]").toString();
        }
        return value instanceof String text ? Json.quote(text) : value.toString();
    }
}
