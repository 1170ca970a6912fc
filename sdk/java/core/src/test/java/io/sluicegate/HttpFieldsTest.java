package io.sluicegate;

import io.sluicegate.internal.Decided;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class HttpFieldsTest {
    private static Decision decision(boolean allowed, long retryUs, Mode mode) {
        return new Decided(allowed, allowed ? 1 : 0, 0, 1000, 999, retryUs, 86_400_001, "llm", "tokens",
            List.of(new Quota("tokens", 1000, 86_400_000_000L, false)), mode, null, 0);
    }

    @Test
    void what_is_left_is_said_in_the_head() {
        assertEquals("{RateLimit-Policy=\"tokens\";q=1000;w=86400, RateLimit=\"tokens\";r=999;t=87}",
            HttpFields.of(decision(true, 0, Mode.STORE)).toString());
        assertEquals("1", HttpFields.of(decision(false, 1, Mode.STORE)).get("Retry-After"));
        assertEquals("2", HttpFields.of(decision(false, 1_000_001, Mode.LOCAL)).get("Retry-After"));
        assertEquals("{Retry-After=1}", HttpFields.of(decision(false, 1_000_000, Mode.DENY)).toString());
        assertEquals(null, HttpFields.of(decision(false, Decision.NEVER, Mode.STORE)).get("Retry-After"));
    }

    private static HttpAnswer refusal(long retryUs, Mode mode) {
        return HttpAnswer.of(decision(false, retryUs, mode));
    }

    @Test
    void a_refusal_is_a_problem() {
        HttpAnswer never = refusal(Decision.NEVER, Mode.STORE);
        assertEquals(429, never.status());
        assertEquals("{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Request cannot be satisfied as"
            + " assigned quota has been exceeded\",\"status\":429,\"detail\":\"the cost exceeds the limit of 1000\",\"violated-policies\":[\"tokens\"]}",
            never.body());
        assertEquals("application/problem+json", never.fields().get("Content-Type"));
        assertTrue(refusal(1_000_000, Mode.DENY).body().contains("temporary-reduced-capacity"));
        assertEquals(503, refusal(1_000_000, Mode.DENY).status());
        // As servers have it: nobody decided in time either.
        assertEquals(503, refusal(100_000, Mode.SHED).status());
        assertTrue(refusal(100_000, Mode.SHED).body().contains("#temporary-reduced-capacity"));
        assertFalse(refusal(100_000, Mode.SHED).body().contains("violated-policies"));
        assertThrows(IllegalArgumentException.class, () -> HttpAnswer.of(decision(true, 0, Mode.STORE)));
    }

    @Test
    void a_problem_has_the_status_of_its_answer() {
        HttpAnswer usual = refusal(1_000_000, Mode.STORE);
        assertEquals(usual.body().replace("\"status\":429", "\"status\":403"), usual.with(403).body());
        assertEquals("403 " + usual.fields(), usual.with(403).status() + " " + usual.with(403).fields());
        assertEquals("late", usual.with(429, "text/plain", "late").with(403).body());
        assertEquals("late", usual.with(429, "application/problem+json", "late").with(403).body());
    }

    @Test
    void the_response_of_a_policy_and_the_lack_of_a_decision_are_answered_as_by_filters() {
        Decision refused = decision(false, 1_000_000, Mode.STORE);
        HttpAnswer later = HttpAnswer.of(new Decided(false, 0, 0, 1000, 0, 1_000_000, 0, "llm", "tokens", refused.quotas(), Mode.STORE,
            new Overflow.Response(203, Map.of("x-a", "b"), "later"), 0));
        assertEquals("203 later b 1", later.status() + " " + later.body() + " " + later.fields().get("x-a") + " " + later.fields().get("Retry-After"));
        HttpAnswer nobody = HttpAnswer.of(new SluicegateException(ErrorCode.PERHAPS_CHARGED, "gone"));
        assertEquals("503 1", nobody.status() + " " + nobody.fields().get("Retry-After"));
        assertTrue(nobody.body().contains("temporary-reduced-capacity"));
        SluicegateException mistake = new SluicegateException(ErrorCode.COST_RANGE, "cost");
        HttpAnswer unnamed = HttpAnswer.of(mistake);
        assertEquals("500 {\"type\":\"about:blank\",\"title\":\"Internal Server Error\",\"status\":500}", unnamed.status() + " " + unnamed.body());
        assertEquals(503, HttpAnswer.of(ErrorCode.NOTHING_PUBLISHED.with(Map.of("address", "a:1"))).status());
        assertFalse(HttpAnswer.of(ErrorCode.NOTHING_PUBLISHED.with(Map.of("address", "a:1"))).body().contains("a:1"));
    }

    @Test
    void a_request_without_a_key_is_told_so() {
        String problem = "400 {\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":\"";
        for (String[] each : new String[][] {
            {"key: is missing", text(HttpAnswer.of(ErrorCode.KEY_EMPTY.with(Map.of())))},
            {"key: `1025` bytes are outside 1..=1024", text(HttpAnswer.of(ErrorCode.KEY_LENGTH.with(Map.of("value", 1025))))},
            {"key: is missing, or is given more than once", text(HttpAnswer.BAD_REQUEST)},
            {"header `X-Tenant`: is missing", text(HttpAnswer.badRequest("header `X-Tenant`: is missing"))}}) {
            assertEquals(problem + each[0] + "\"}", each[1]);
        }
    }

    private static String text(HttpAnswer answer) {
        return answer.status() + " " + answer.body();
    }

    @Test
    void only_trusted_proxies_are_believed() {
        ClientAddress address = ClientAddress.behind("10.0.0.0/8", "::1");
        assertEquals("203.0.113.7", address.key("203.0.113.7", "1.2.3.4"));
        assertEquals("1.2.3.4", address.key("10.1.2.3", "1.2.3.4"));
        assertEquals("198.51.100.1", address.key("10.1.2.3", "1.2.3.4, 198.51.100.1, 10.9.9.9"));
        assertEquals("10.1.2.3", address.key("10.1.2.3", "not an address"));
        assertEquals("2001:db8:0:1::/64", address.key("2001:DB8:0:1:aaaa::1", null));
        assertEquals("::/64", ClientAddress.behind().key("::1", "1.2.3.4"));
        assertEquals("203.0.113.7", address.key("::ffff:203.0.113.7", null));
        assertEquals("203.0.113.7", address.key("64:ff9b::cb00:7107", null));
        for (String network : new String[] {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/x", "lb.internal"}) {
            assertEquals("`" + network + "` is not a network",
                assertThrows(IllegalArgumentException.class, () -> ClientAddress.behind(network)).getMessage());
        }
        assertThrows(IllegalArgumentException.class, () -> ClientAddress.behind("example.com"));
    }

    @Test
    void a_port_behind_an_address_is_no_part_of_it() {
        ClientAddress address = ClientAddress.behind("10.0.0.0/8", "fd00::/8");
        for (String forwarded : new String[] {"1.2.3.4", "1.2.3.4:555", "1.2.3.4:1", "9.9.9.9:1, 1.2.3.4:65535, 10.9.9.9:80", "1.2.3.4:5,[fd00::1]:443"}) {
            assertEquals("1.2.3.4", address.key("10.1.2.3", forwarded), forwarded);
        }
        for (String forwarded : new String[] {"2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:555", "[2001:db8:0:0:ffff::1]:1"}) {
            assertEquals("2001:db8::/64", address.key("10.1.2.3", forwarded), forwarded);
        }
        // Without brackets it is a part of the address.
        assertEquals("2001:db8:0:555::/64", address.key("10.1.2.3", "2001:db8:0:555::1"));
        for (String forwarded : new String[] {"1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", ":555", "[]:555", "1.2.3:555", ""}) {
            assertEquals("10.1.2.3", address.key("10.1.2.3", forwarded), forwarded);
        }
    }

    @Test
    void another_field_is_believed_from_trusted_proxies_alone() {
        ClientAddress address = ClientAddress.behind("10.0.0.0/8").from("CF-Connecting-IP");
        assertEquals("CF-Connecting-IP", address.header());
        assertEquals("1.2.3.4", address.key("10.1.2.3", "1.2.3.4"));
        assertEquals("203.0.113.7", address.key("203.0.113.7", "1.2.3.4"));
        assertEquals("X-Forwarded-For", ClientAddress.behind().header());
        assertThrows(IllegalArgumentException.class, () -> ClientAddress.behind().from(" "));
    }
}
