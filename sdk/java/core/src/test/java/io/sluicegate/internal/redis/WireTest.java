package io.sluicegate.internal.redis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.sluicegate.AttributeKey;
import io.sluicegate.Decision;
import io.sluicegate.HttpFields;
import io.sluicegate.Mode;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Verb;
import io.sluicegate.internal.policy.Key;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.PolicyException;
import io.sluicegate.internal.policy.PolicyReader;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.testing.Checkout;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The bytes and texts of spec/wire. */
class WireTest {
    private static final HexFormat HEX = HexFormat.of();

    private static Stream<Map<?, ?>> entries(String file) {
        Map<?, ?> all = (Map<?, ?>) Json.read(Checkout.bytes("spec/wire/" + file + ".json"));
        return ((List<?>) all.get("entries")).stream().map(each -> (Map<?, ?>) each);
    }

    private static long number(Object value) {
        return Long.parseLong(value.toString());
    }

    private static byte[] hex(Object value) {
        return HEX.parseHex((String) value);
    }

    private static String ascii(byte[] bytes) {
        return new String(bytes, StandardCharsets.US_ASCII);
    }

    /** Writes JSON as it was read. */
    private static String write(Object value) {
        StringBuilder out = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((name, each) -> out.append(out.length() > 0 ? "," : "").append(Json.quote((String) name)).append(":").append(write(each)));
            return "{" + out + "}";
        }
        if (value instanceof List<?> list) {
            list.forEach(each -> out.append(out.length() > 0 ? "," : "").append(write(each)));
            return "[" + out + "]";
        }
        return value instanceof String text ? Json.quote(text) : value.toString();
    }

    private static Policy policy(Object document) {
        return PolicyReader.document(write(document));
    }

    private static Policy named(String name) {
        return entries("documents").filter(each -> each.get("document") instanceof Map<?, ?> document && name.equals(document.get("name")))
            .map(each -> policy(each.get("document"))).findFirst().orElseThrow();
    }

    @Test
    void keys_are_alike() {
        entries("keys").forEach(each -> {
            if (each.containsKey("permit_id")) {
                byte[] id = ((String) each.get("permit_id")).getBytes(StandardCharsets.UTF_8);
                assertEquals(each.get("permit_hex"), HEX.formatHex(PermitId.of(id).bytes()));
            } else if (each.containsKey("state_key")) {
                assertEquals(each.get("state_key"), ascii(Keys.state((String) each.get("policy"), hex(each.get("key_hex")))));
            } else {
                assertEquals(each.get("rules_key"), ascii(Keys.rules((String) each.get("policy"), (String) each.get("generation"))));
            }
        });
    }

    @Test
    void documents_become_the_same_rules() {
        entries("documents").filter(each -> each.containsKey("document")).forEach(each -> {
            Policy policy = policy(each.get("document"));
            Map<?, ?> compiled = (Map<?, ?>) each.get("compiled");
            same(policy.rules(), (Map<?, ?>) compiled.get("rules"));
            if (compiled.get("overrides") instanceof List<?> overrides) {
                for (Object override : overrides) {
                    same(policy.rulesOf(Key.of((String) ((Map<?, ?>) override).get("key")), 0), (Map<?, ?>) override);
                }
            }
            Head head = Head.of(policy.rules(), number(each.get("since_us")) / 1000);
            assertEquals(each.get("blob_hex"), HEX.formatHex(head.blob(policy.rules())));
            assertEquals(each.get("generation"), policy.rules().generationHex());
        });
    }

    private static void same(RuleSet own, Map<?, ?> compiled) {
        assertEquals(compiled.get("blob"), Base64.getUrlEncoder().withoutPadding().encodeToString(own.bytes()));
        assertEquals(number(compiled.get("life_ms")), own.lifeMs());
        int place = 0;
        for (Object each : (List<?>) compiled.get("each")) {
            Map<?, ?> says = (Map<?, ?>) each;
            Rule rule = own.rules().get(place++);
            assertEquals(says.get("name"), rule.name());
            assertEquals(number(says.get("limit")), rule.limit());
            assertEquals(says.containsKey("window_us") ? number(says.get("window_us")) : 0, rule.windowUs());
        }
    }

    @Test
    void limits_that_callers_bring_along_are_alike() {
        entries("limits").forEach(each -> {
            // The name of a rule without one is its algorithm's, as in a document.
            RuleSet rules = policy(each.get("document")).rules();
            Head head = Head.broughtAlong(rules);
            assertEquals(each.get("head_hex"), HEX.formatHex(head.bytes()));
            assertEquals(each.get("blob_hex"), HEX.formatHex(head.blob(rules)));
            byte[] state = java.util.Arrays.copyOf(head.bytes(), head.bytes().length + 9);
            assertEquals(rules, Head.rulesOfState(state), each.get("head_hex").toString());
            for (int length = 0; length < head.bytes().length; length++) {
                assertNull(Head.rulesOfState(java.util.Arrays.copyOf(state, length)));
            }
        });
    }

    @Test
    void what_is_no_policy_is_refused_with_its_path() {
        List<String> others = new java.util.ArrayList<>();
        entries("documents").filter(each -> each.containsKey("text")).forEach(each -> {
            String text = (String) each.get("text");
            String message = assertThrows(PolicyException.class, () -> PolicyReader.document(text), text).getMessage();
            String wanted = path((String) ((List<?>) each.get("errors")).get(0));
            if (!path(message).equals(wanted)) {
                others.add(text + " wanted " + wanted + " said " + message);
            }
        });
        assertEquals(List.of(), others);
    }

    private static String path(String message) {
        int end = message.indexOf(": ");
        return end < 0 ? "" : message.substring(0, end);
    }

    @Test
    void keys_of_attributes_are_alike() {
        entries("attribute-keys").forEach(each -> {
            Map<?, ?> request = (Map<?, ?>) each.get("request");
            Map<String, String> values = new java.util.HashMap<>();
            request.forEach((name, value) -> {
                if (value instanceof Map<?, ?> headers) {
                    headers.forEach((header, field) -> values.put("header:" + header, (String) field));
                } else {
                    values.put((String) name, (String) value);
                }
            });
            List<String> attributes = ((List<?>) each.get("key")).stream().map(String.class::cast).toList();
            String made = (String) each.get("made");
            assertEquals(made.isEmpty() ? null : made, AttributeKey.of(attributes, values));
        });
    }

    @Test
    void requests_are_alike() {
        entries("requests").forEach(each -> {
            Verb verb = Verb.valueOf(((String) each.get("verb")).toUpperCase(Locale.ROOT));
            Clock clock = Clock.valueOf(((String) each.get("clock")).toUpperCase(Locale.ROOT));
            long[][] windows = ((List<?>) each.get("windows")).stream().map(window -> window instanceof List<?> pair
                ? new long[] {number(pair.get(0)), number(pair.get(1))} : null).toArray(long[][]::new);
            byte[] before = each.get("before") instanceof Map<?, ?> known ? hex(known.get("blob_hex"))
                : "lost".equals(each.get("before")) ? new byte[0] : null;
            long cost = each.containsKey("cost") ? number(each.get("cost")) : 1;
            long maxWait = each.get("max_wait_us") instanceof Json.Num wait ? number(wait) : Numbers.SPAN_MAX_US;
            PermitId permit = each.get("id") instanceof String id ? PermitId.of(id.getBytes(StandardCharsets.UTF_8)) : null;
            byte[] request = Request.of(verb, cost, maxWait, permit, new Request.End(clock, number(each.get("at_us")), windows, before));
            assertEquals(each.get("request_hex"), HEX.formatHex(request), each.toString());
        });
    }

    @Test
    void replies_mean_the_same() {
        entries("replies").forEach(each -> {
            RuleSet rules = named((String) each.get("policy")).rules();
            Verb verb = Verb.valueOf(((String) each.get("verb")).toUpperCase(Locale.ROOT));
            Reply reply = Reply.read(hex(each.get("reply_hex")), rules, verb, false);
            assertEquals(meaning(each.get("means")), meaning(reply, rules), each.toString());
        });
    }

    private static String meaning(Object means) {
        if (means instanceof Map<?, ?> m && m.containsKey("allowed")) {
            Object retry = m.get("retry_after_us");
            return m.get("allowed") + " " + m.get("granted") + " " + m.get("wait_us") + " " + m.get("limit") + " " + m.get("remaining") + " "
                + (retry == Json.NULL ? "-1" : retry) + " " + m.get("reset_after_us") + " " + m.get("rule") + " "
                + (m.get("in_use") instanceof Map<?, ?> each ? new TreeMap<>(each) : "");
        }
        return means instanceof Map<?, ?> m ? m.toString() : means.toString();
    }

    private static String meaning(Reply reply, RuleSet rules) {
        if (reply instanceof Reply.Decided decided) {
            Answer a = decided.answer();
            return a.allowed() + " " + a.granted() + " " + a.waitUs() + " " + a.limit() + " " + a.remaining() + " " + a.retryAfterUs() + " "
                + a.resetAfterUs() + " " + rules.rules().get(a.rule()).name() + " " + inUse(decided.inUse(), rules);
        }
        if (reply instanceof Reply.Malformed malformed) {
            return malformed.part().equals("reply") ? "foreign" : "{malformed=" + malformed.part() + "}";
        }
        return reply instanceof Reply.OtherRules other ? "{unknown=" + HEX.formatHex(other.state()) + "}" : "unsupported";
    }

    private static String inUse(long[] inUse, RuleSet rules) {
        Map<String, Long> each = new TreeMap<>();
        for (int place = 0; place < inUse.length; place++) {
            each.put(rules.rules().get(place).name(), inUse[place]);
        }
        return each.isEmpty() ? "" : each.toString();
    }

    @Test
    void calendars_have_the_same_windows() {
        entries("calendars").forEach(each -> {
            String zone = (String) each.get("zone");
            Calendar calendar = new Calendar(Calendar.Unit.of((String) each.get("unit")), Calendar.zoneOf(zone), zone);
            long[] window = calendar.windowAround(number(each.get("now_us")));
            assertArrayEquals(new long[] {number(each.get("start_us")), number(each.get("end_us"))}, window, each.toString());
        });
    }

    @Test
    void header_fields_are_alike() {
        entries("headers").forEach(each -> {
            RuleSet rules = policy(each.get("document")).rules();
            Rule rule = rules.rules().get(0);
            Map<?, ?> d = (Map<?, ?>) each.get("decision");
            long retry = d.get("retry_after_us") == Json.NULL ? Decision.NEVER : number(d.get("retry_after_us"));
            Decision decision = new Decision((Boolean) d.get("allowed"), number(d.get("granted")), 0, number(d.get("limit")),
                number(d.get("remaining")), retry, number(d.get("reset_after_us")), "p", rule.name(), rules.quotas(), Mode.STORE, null, 0);
            Map<String, String> fields = HttpFields.of(decision);
            assertEquals(each.get("ratelimit"), fields.get("RateLimit"));
            assertEquals(each.get("ratelimit-policy"), fields.get("RateLimit-Policy"), each.toString());
            assertEquals(each.get("retry-after") == Json.NULL ? null : each.get("retry-after"), fields.get("Retry-After"));
            if (each.get("problem") != Json.NULL) {
                assertEquals(each.get("problem"), Json.read(HttpFields.problem(decision)));
            }
        });
    }
}
