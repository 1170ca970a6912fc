package io.sluicegate.internal.policy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.OnStoreFailure;
import io.sluicegate.Overflow;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.Records;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class RecordTest {
    private static Policy read(String name, String record) {
        return RecordReader.read(name, record.getBytes(StandardCharsets.UTF_8));
    }

    private static RecordException refused(String record) {
        return assertThrows(RecordException.class, () -> read("p", record), record);
    }

    private static Stream<Map<?, ?>> vectors(boolean readable) {
        Map<?, ?> all = (Map<?, ?>) Json.read(Checkout.bytes("spec/wire/records.json"));
        return ((List<?>) all.get("entries")).stream()
            .<Map<?, ?>>map(each -> (Map<?, ?>) each).filter(each -> each.containsKey("blob_hex") == readable);
    }

    @Test
    void records_become_the_blobs_of_the_vectors() {
        int costly = 0;
        List<Map<?, ?>> entries = vectors(true).toList();
        for (Map<?, ?> entry : entries) {
            try {
                compareBlob(entry);
            } catch (RecordException e) {
                assertEquals("blob: one decision could take Redis too long", e.getMessage());
                costly++;
            }
        }
        assertTrue(entries.size() - costly > 400 && costly < 50, costly + " of " + entries.size() + " are too costly");
    }

    private static void compareBlob(Map<?, ?> entry) {
        String record = (String) entry.get("record");
        Policy policy = read("p", record);
        Head head = Head.of(policy.rules(), (Long) entry.get("since_us") / 1000);
        assertEquals(entry.get("blob_hex"), HexFormat.of().formatHex(head.blob(policy.rules())));
        assertEquals(entry.get("generation"), policy.rules().generationHex());
        Map<?, ?> members = (Map<?, ?>) Json.read(record);
        same(members, policy.rules());
        if (members.get("overrides") instanceof List<?> overrides) {
            for (Object override : overrides) {
                same((Map<?, ?>) override, policy.rulesOf((String) ((Map<?, ?>) override).get("key"), 0));
            }
        }
    }

    private static void same(Map<?, ?> record, RuleSet rules) {
        assertEquals(record.get("blob"), Base64.getUrlEncoder().withoutPadding().encodeToString(rules.bytes()));
        assertEquals(record.get("life_ms"), rules.lifeMs());
        int place = 0;
        for (Object each : (List<?>) record.get("each")) {
            Map<?, ?> expected = (Map<?, ?>) each;
            Rule rule = rules.rules().get(place++);
            assertEquals(expected.get("name"), rule.name());
            assertEquals(expected.get("limit"), rule.limit());
            assertEquals(expected.containsKey("window_us") ? expected.get("window_us") : 0L, rule.windowUs());
            Object zone = expected.get("calendar") instanceof Map<?, ?> calendar ? calendar.get("zone") : null;
            assertEquals(zone, rule.hasCalendar() ? rule.calendar().zoneName() : null);
        }
        assertEquals(place, rules.rules().size());
    }

    @Test
    void other_records_of_the_vectors_are_later_or_damaged() {
        assertTrue(vectors(false).count() > 50);
        vectors(false).forEach(each -> assertEquals(each.get("later"), refused((String) each.get("record")).isLater(), each.toString()));
    }

    @Test
    void a_problem_names_the_member() {
        for (Object[] wrong : new Object[][] {
            {"record", 2L, "record: `2` is of a later version; this program reads 1"},
            {"version", -1L, "version: `-1` is outside 0..=9007199254740991"},
            {"version", null, "version: is missing"},
            {"on_store_failure", "ask", "on_store_failure: `ask` is unknown"},
            {"overflow", Map.of("kind", "queue", "max_wait_us", 0L), "overflow.max_wait_us: `0` is outside 1..=9007199254740991"},
            {"overflow", Map.of("kind", "degrade", "response", Map.of("status", 600L)), "overflow.response.status: `600` is outside 200..=599"},
            {"each", List.of(7L), "each[0]: expected an object"},
            {"life_ms", 0L, "life_ms: `0` is outside 1..=34560000000"},
            {"life_ms", 34_560_000_001L, "life_ms: `34560000001` is outside 1..=34560000000"},
            {"blob", "CQ", "blob: rules are cut off"},
            {"overrides", List.of(Map.of("key", "k")), "overrides[0].each: is missing"},
        }) {
            assertEquals(wrong[2], refused(Records.of("fixed-1", wrong[0], wrong[1])).getMessage());
        }
    }

    @Test
    void the_record_of_a_later_version_is_known_whatever_else_it_has() {
        assertTrue(refused("{\"record\":2}").isLater());
        assertFalse(refused("{\"record\":2.5}").isLater());
        assertFalse(refused("{}").isLater());
    }

    @Test
    void a_record_of_more_than_8_mib_is_damaged() {
        String most = Records.of("fixed-1", "more", "");
        int room = 8_388_608 - most.length();
        assertEquals(1, read("p", Records.of("fixed-1", "more", "x".repeat(room))).version());
        RecordException large = assertThrows(RecordException.class, () -> read("p", Records.of("fixed-1", "more", "x".repeat(room + 1))));
        assertEquals("is longer than 8388608 bytes", large.getMessage());
        assertFalse(large.isLater());
    }

    /** The record of a policy of one rule, with another number of that rule. */
    private static String withNumber(String policy, int place, double number) {
        byte[] blob = Base64.getUrlDecoder().decode((String) ((Map<?, ?>) Json.read(Records.of(policy))).get("blob"));
        ByteBuffer.wrap(blob).order(ByteOrder.LITTLE_ENDIAN).putDouble(14 + 8 * place, number);
        return Records.of(policy, "blob", Base64.getUrlEncoder().withoutPadding().encodeToString(blob));
    }

    @Test
    void rules_whose_limit_burst_or_time_is_none_are_damaged() {
        Map<String, int[]> places = Map.of("all-0", new int[] {0, 1, 2, 3, 4}, "all-2", new int[] {0, 1, 2, 3, 4}, "all-5", new int[] {0, 1},
            "all-6", new int[] {0, 1, 2}, "all-7", new int[] {0, 2}, "all-10", new int[] {0, 1}, "all-11", new int[] {0, 1},
            "all-12", new int[] {0, 1}, "all-13", new int[] {0, 1});
        places.forEach((policy, each) -> {
            for (int place : each) {
                assertFalse(refused(withNumber(policy, place, 0)).isLater(), policy + " " + place);
            }
        });
    }

    @Test
    void rules_that_take_redis_too_long_are_damaged() {
        RecordException problem = refused(withNumber("all-12", 0, 5000));
        assertEquals("blob: one decision could take Redis too long", problem.getMessage());
        assertFalse(problem.isLater());
    }

    @Test
    void a_policy_has_what_its_record_has() {
        Policy policy = read("whole", Records.of("whole", "app", "owner", "version", 7L, "since_ms", 5L, "new member", List.of()));
        assertEquals("whole", policy.name());
        assertEquals(7, policy.version());
        assertEquals(5, policy.sinceMs());
        assertEquals(2, policy.rules().rules().size());
        assertEquals(1000, policy.rulesOf("203.0.113.7", 0).rules().get(0).limit());
        assertEquals(200, policy.rulesOf("203.0.113.8", 0).rules().get(0).limit());
        assertEquals(OnStoreFailure.DENY, policy.onStoreFailure());
        assertTrue(policy.isFor("admin"));
        assertFalse(policy.isFor("web"));
        assertFalse(policy.isFor(null));
        assertTrue(policy.isOwnedBy("owner"));
        assertFalse(policy.isFor("owner"));
    }

    @Test
    void what_becomes_of_requests_over_the_limit_is_that_of_the_record() {
        assertEquals(OverflowAction.REJECT, read("p", Records.of("reject")).overflow());
        assertEquals(OverflowAction.SHADOW, read("p", Records.of("shadow")).overflow());
        assertEquals(new OverflowAction(null, 900_000), read("p", Records.of("queue")).overflow());
        assertEquals(new Overflow.Response(203, Map.of("x-a", "b"), "later"), read("p", Records.of("degrade")).overflow().result());
        assertEquals(new Overflow.Tag("queue"), read("p", Records.of("jobs-degrade")).overflow().result());
        assertEquals(new Overflow.Divert("jobs"), read("p", Records.of("divert")).overflow().result());
    }

    @Test
    void an_override_ends_and_then_the_rules_of_the_policy_apply_from_that_instant() {
        Policy policy = read("whole", Records.of("whole"));
        long endMs = 1_798_740_000_000L;
        String vip = "vip";
        assertEquals(9, policy.rulesOf(vip, endMs - 1).rules().get(0).limit());
        assertEquals(200, policy.rulesOf(vip, endMs).rules().get(0).limit());
        assertEquals(5, policy.sinceMs(vip, 5, endMs - 1));
        assertEquals(endMs, policy.sinceMs(vip, 5, endMs));
        assertEquals(endMs + 1, policy.sinceMs(vip, endMs + 1, endMs + 1));
        assertEquals(5, policy.sinceMs("other", 5, endMs));
    }
}
