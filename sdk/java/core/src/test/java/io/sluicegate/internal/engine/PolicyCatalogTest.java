package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.Records;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class PolicyCatalogTest {
    @TestFactory
    Stream<DynamicTest> policies_are_followed_as_the_lives_say() {
        List<?> lives = (List<?>) Json.read(Checkout.bytes("spec/vectors/redis-policies.json"));
        return lives.stream().map(each -> (Map<?, ?>) each)
            .map(life -> DynamicTest.dynamicTest((String) life.get("name"), () -> live((List<?>) life.get("steps"))));
    }

    private static void live(List<?> steps) {
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> { });
        Map<String, byte[]> hash = new HashMap<>();
        Set<String> names = new HashSet<>();
        int place = 0;
        for (Object each : steps) {
            Map<?, ?> step = (Map<?, ?>) each;
            if (step.get("hash") != null) {
                hash = fields((Map<?, ?>) step.get("hash"));
                hash.keySet().stream().filter(name -> !name.startsWith("#")).forEach(names::add);
            }
            if (step.get("op").equals("look")) {
                book.look(hash, names, false, 1);
            } else if (step.get("op").equals("hear") && book.isNews((String) step.get("message"))) {
                book.look(hash, names, true, 1);
            }
            if (step.get("holds") != null) {
                assertEquals(holds((Map<?, ?>) step.get("holds")), book.revision() + " " + versions(book, names), "step " + place);
            }
            place++;
        }
    }

    @Test
    void the_revision_that_is_held_is_news_after_redis_was_empty() {
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> { });
        Map<String, byte[]> published = Map.of("#format", "1".getBytes(StandardCharsets.UTF_8), "#revision", "7".getBytes(StandardCharsets.UTF_8));
        StringBuilder seen = new StringBuilder();
        for (Map<String, byte[]> found : List.of(published, Map.<String, byte[]>of(), published)) {
            book.look(found, List.of(), false, 1);
            seen.append(book.isNews("7")).append(' ').append(book.isNews("8")).append(' ').append(book.isNews("no number")).append("; ");
        }
        assertEquals("false true false; true true false; false true false; ", seen.toString());
    }

    private static Map<String, Long> versions(PolicyCatalog book, Set<String> names) {
        Map<String, Long> versions = new TreeMap<>();
        for (String name : names) {
            if (book.get(name) != null && book.get(name).policy() != null) {
                versions.put(name, book.get(name).policy().version());
            }
        }
        return versions;
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
            fields.put((String) name, (value instanceof String text ? text : Json.write(value)).getBytes(StandardCharsets.UTF_8)));
        return fields;
    }

    private static PolicyCatalog.Held heldAfter(PolicyCatalog book, int revision, String record, long nowMs) {
        Map<String, byte[]> hash = new HashMap<>();
        Map.of("#format", "1", "#revision", Integer.toString(revision), "p", record)
            .forEach((name, text) -> hash.put(name, text.getBytes(StandardCharsets.UTF_8)));
        book.look(hash, List.of("p"), false, nowMs);
        return book.get("p");
    }

    /** {@code sinceMs} is null for a record without an instant. */
    private static long instantAfter(PolicyCatalog book, int revision, int version, Object sinceMs, long nowMs) {
        return heldAfter(book, revision, Records.of("fixed-" + version, "version", (long) version, "since_ms", sinceMs), nowMs).takenOverMs();
    }

    @Test
    void a_version_is_of_the_instant_that_the_server_says() {
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> { });
        assertEquals(5_000, instantAfter(book, 1, 1, 5000, 900_000));
        assertEquals(7_000, instantAfter(book, 2, 2, 7000, 900_000));
        // An earlier instant than that of another version before it, and no earlier one by the same version later.
        assertEquals(7_001, instantAfter(book, 3, 3, 6000, 900_000));
        assertEquals(7_001, instantAfter(book, 4, 3, 6000, 900_000));
        assertEquals(0, instantAfter(new PolicyCatalog((name, problem, isHeld) -> { }), 1, 1, 0, 900_000));
    }

    @Test
    void a_version_that_is_held_keeps_its_instant_whatever_is_said_later() {
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> { });
        assertEquals(5_000, instantAfter(book, 1, 1, 5000, 900_000));
        assertEquals(5_000, instantAfter(book, 2, 1, 4000, 900_000));
        assertEquals(5_000, instantAfter(book, 3, 1, null, 900_000));
        assertEquals(5_001, instantAfter(book, 4, 2, 4000, 900_000));
        // It is put back: taken over anew.
        assertEquals(5_002, instantAfter(book, 5, 1, 5000, 900_000));
    }

    @Test
    void without_a_number_a_version_is_of_the_programs_own_instant() {
        for (Object since : new Object[] {null, -1L, 1.5, "5", 1L << 53}) {
            PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> { });
            assertEquals(900, instantAfter(book, 1, 1, since, 900), "since_ms " + since);
            assertEquals(901, instantAfter(book, 2, 2, since, 800), "since_ms " + since);
            // A version that is held keeps its instant, also when a server says another one at last.
            assertEquals(901, instantAfter(book, 3, 2, 600, 800), "since_ms " + since);
            assertEquals(901, instantAfter(book, 4, 2, since, 800), "since_ms " + since);
        }
        assertEquals((1L << 53) - 1, instantAfter(new PolicyCatalog((name, problem, isHeld) -> { }), 1, 1, 9007199254740991L, 1));
    }

    @Test
    void later_and_current_records_in_turn_are_each_followed() {
        List<String> reported = new ArrayList<>();
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> reported.add(name + " " + problem));
        String problem = "record: `2` is of a later version; this program reads 1";
        for (int revision = 1; revision <= 8; revision += 2) {
            PolicyCatalog.Held later = heldAfter(book, revision, Records.of("fixed-2", "record", 2L), 1);
            assertNull(later.policy());
            assertEquals(problem, later.problem());
            PolicyCatalog.Held current = heldAfter(book, revision + 1, Records.of("fixed-1", "version", (long) revision), 1);
            assertEquals(revision, current.policy().version());
            assertNull(current.problem());
        }
        assertEquals(Collections.nCopies(4, "p " + problem), reported);
    }

    @Test
    void a_damaged_record_changes_nothing() {
        List<String> reported = new ArrayList<>();
        PolicyCatalog book = new PolicyCatalog((name, problem, isHeld) -> reported.add(problem + (isHeld ? ", held" : "")));
        String damaged = Records.of("fixed-2", "life_ms", null);
        assertNull(heldAfter(book, 1, damaged, 1).policy());
        Policy held = heldAfter(book, 2, Records.of("fixed-1", "since_ms", 5_000L), 1).policy();
        PolicyCatalog.Held after = heldAfter(book, 3, damaged, 1);
        assertSame(held, after.policy());
        assertEquals(5_000, after.takenOverMs());
        assertEquals("life_ms: is missing", after.problem());
        after = heldAfter(book, 4, Records.of("fixed-2", "more", "x".repeat(8 << 20)), 1);
        assertSame(held, after.policy());
        assertEquals("is longer than 8388608 bytes", after.problem());
        assertEquals(List.of("life_ms: is missing", "life_ms: is missing, held", "is longer than 8388608 bytes, held"), reported);
    }
}
