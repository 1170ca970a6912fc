package io.sluicegate.internal.redis;

import io.sluicegate.Limit;
import io.sluicegate.internal.Decided;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.AttributeKey;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Mode;
import io.sluicegate.Verb;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.testing.Checkout;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
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

    private static RuleSet rules(Object record) {
        return RecordReader.read("p", ((String) record).getBytes(StandardCharsets.UTF_8)).rules();
    }

    private static RuleSet named(String name) {
        return entries("records").filter(each -> name.equals(each.get("name"))).map(each -> rules(each.get("record"))).findFirst().orElseThrow();
    }

    @Test
    void keys_are_alike() {
        entries("keys").forEach(each -> {
            if (each.containsKey("permit_id")) {
                assertEquals(each.get("permit_hex"), HEX.formatHex(PermitId.of((String) each.get("permit_id")).bytes()));
            } else if (each.containsKey("state_key")) {
                String key = new String(hex(each.get("key_hex")), StandardCharsets.UTF_8);
                // A text has no bytes that are not UTF-8.
                if (Arrays.equals(hex(each.get("key_hex")), key.getBytes(StandardCharsets.UTF_8))) {
                    assertEquals(each.get("state_key"), ascii(Keys.state((String) each.get("policy"), key)));
                }
            } else {
                assertEquals(each.get("rules_key"), ascii(Keys.rules((String) each.get("policy"), (String) each.get("generation"))));
            }
        });
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
            assertEquals(each.get("made"), AttributeKey.of(attributes, values));
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
            long maxWait = each.get("max_wait_us") instanceof Long wait ? wait : Numbers.SPAN_MAX_US;
            PermitId permit = each.get("id") instanceof String id ? PermitId.of(id) : null;
            byte[] request = Request.of(verb, cost, maxWait, permit, new Request.End(clock, number(each.get("at_us")), windows, before));
            assertEquals(each.get("request_hex"), HEX.formatHex(request), each.toString());
        });
    }

    @Test
    void replies_mean_the_same() {
        entries("replies").forEach(each -> {
            RuleSet rules = named((String) each.get("policy"));
            Verb verb = Verb.valueOf(((String) each.get("verb")).toUpperCase(Locale.ROOT));
            Result reply = Result.read(hex(each.get("reply_hex")), rules, verb, false);
            assertEquals(meaning(each.get("means")), meaning(reply, rules), each.toString());
        });
    }

    private static String meaning(Object means) {
        if (means instanceof Map<?, ?> m && m.containsKey("allowed")) {
            Object retry = m.get("retry_after_us");
            return m.get("allowed") + " " + m.get("granted") + " " + m.get("wait_us") + " " + m.get("limit") + " " + m.get("remaining") + " "
                + (retry == null ? "-1" : retry) + " " + m.get("reset_after_us") + " " + m.get("rule") + " "
                + (m.get("in_use") instanceof Map<?, ?> each ? new TreeMap<>(each) : "");
        }
        return means instanceof Map<?, ?> m ? m.toString() : means.toString();
    }

    private static String meaning(Result reply, RuleSet rules) {
        if (reply instanceof Result.Decided decided) {
            Answer a = decided.answer();
            return a.allowed() + " " + a.granted() + " " + a.waitUs() + " " + a.limit() + " " + a.remaining() + " " + a.retryAfterUs() + " "
                + a.resetAfterUs() + " " + rules.rules().get(a.rule()).name() + " " + inUse(decided.inUse(), rules);
        }
        if (reply instanceof Result.ThisKey malformed) {
            return malformed.cause().equals("malformed reply") ? "foreign" : "{malformed=" + malformed.cause().substring(10) + "}";
        }
        return reply instanceof Result.OtherRules other ? "{unknown=" + HEX.formatHex(other.state()) + "}" : "unsupported";
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
            Calendar calendar = new Calendar(Limit.Every.valueOf(((String) each.get("unit")).toUpperCase(Locale.ROOT)), Calendar.zoneOf(zone), zone);
            long[] window = calendar.windowAround(number(each.get("now_us")));
            assertArrayEquals(new long[] {number(each.get("start_us")), number(each.get("end_us"))}, window, each.toString());
        });
    }

    @Test
    void header_fields_are_alike() {
        entries("headers").forEach(each -> {
            RuleSet rules = rules(each.get("record"));
            Rule rule = rules.rules().get(0);
            Map<?, ?> d = (Map<?, ?>) each.get("decision");
            long retry = d.get("retry_after_us") == null ? Decision.NEVER : number(d.get("retry_after_us"));
            Decision decision = new Decided((Boolean) d.get("allowed"), number(d.get("granted")), 0, number(d.get("limit")),
                number(d.get("remaining")), retry, number(d.get("reset_after_us")), "p", rule.name(), rules.quotas(), Mode.STORE, null, 0);
            Map<String, String> fields = HttpFields.of(decision);
            assertEquals(each.get("ratelimit"), fields.get("RateLimit"));
            assertEquals(each.get("ratelimit-policy"), fields.get("RateLimit-Policy"), each.toString());
            assertEquals(each.get("retry-after"), fields.get("Retry-After"));
            if (each.get("problem") != null) {
                assertEquals(each.get("problem"), Json.read(HttpAnswer.of(decision).body()));
            }
        });
    }
}
