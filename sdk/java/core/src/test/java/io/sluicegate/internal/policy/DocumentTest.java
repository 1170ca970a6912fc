package io.sluicegate.internal.policy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.OnStoreFailure;
import io.sluicegate.Overflow;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Rules.Rate;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class DocumentTest {
    private static final String RULES = "\"rules\":[{\"token_bucket\":{\"rate\":\"10/s\"}}]";

    @Test
    void the_example_of_the_page_is_read() {
        Policy policy = PolicyReader.published("orders.create", """
            {"version": 7, "state": "active", "app": "shop", "new member": 1,
              "document": {
                "name": "orders.create",
                "apps": ["admin", "shop"],
                "rules": [
                  {"name": "burst", "token_bucket": {"rate": "100/s", "burst": 200}},
                  {"name": "daily", "fixed_window": {"limit": 5000, "calendar": "day", "time_zone": "Europe/Berlin"}}
                ],
                "overrides": [{"key": "203.0.113.7", "rules": [{"name": "burst", "token_bucket": {"rate": "1000/s"}}]}],
                "carry": "usage", "overflow": {"queue": {"max_wait": "500ms"}},
                "on_store_failure": "local", "on_overload": {"wait": "200ms"}, "on_key_quota": "share", "leases": "auto",
                "match": {"path": {"prefix": "/orders"}, "method": ["POST"]}, "key": ["remote_ip"]
              }}""".getBytes(StandardCharsets.UTF_8));
        assertEquals(7, policy.version());
        assertEquals(2, policy.rules().rules().size());
        assertEquals(1000, policy.rulesOf(Key.of("203.0.113.7"), 0).rules().get(0).limit());
        assertEquals(200, policy.rulesOf(Key.of("203.0.113.8"), 0).rules().get(0).limit());
        assertEquals(500_000, policy.over().queueMaxWaitUs());
        assertEquals(200_000, policy.overloadWaitUs());
        assertEquals(OnStoreFailure.LOCAL, policy.onStoreFailure());
        assertTrue(policy.isFor("admin"));
        assertFalse(policy.isFor("web"));
        assertFalse(policy.isFor(null));
    }

    @Test
    void rates_and_durations_are_those_of_the_page() {
        assertEquals(new Rate(100, 1_000_000), Values.rate("100/s"));
        assertEquals(new Rate(5, 200_000), Values.rate("5/200ms"));
        assertEquals(new Rate(10, 60_000_000), Values.rate("10/1m"));
        assertEquals(new Rate(65_536, 1_000_000), Values.rate("64KiB/s"));
        assertEquals(new Rate(1L << 32, 1), Values.rate("4GiB/us"));
        for (String text : List.of("100", "100/", "/s", "1/s/s", "0/s", "5/0s", "1.5/s", "010/s", "1e3/s", "100 /s", "100/S",
            "64kib/s", "1/367d", "4294967297/s", "5GiB/s", "", "/", "1/01s", "99999999999999999999/s")) {
            assertNull(Values.rate(text), text);
        }
        for (String text : List.of("0s", "60", "1.5s", "5 s", "5S", "1week", "367d", "", "s", "01s", "-1s")) {
            assertEquals(-1, Values.duration(text), text);
        }
        assertEquals(Values.DURATION_MAX_US, Values.duration("366d"));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", "[]", "{", "{\"name\":\"a\"}", "{\"name\":\"A\",R}", "{\"name\":12,R}", "{\"name\":\"a\",R,\"x\":1}",
        "{\"name\":\"a\",\"rules\":[]}", "{\"name\":\"a\",R,\"carry\":null}", "{\"name\":\"a\",\"name\":\"a\",R}",
        "{\"name\":\"a\",R,\"overflow\":\"queue\"}", "{\"name\":\"a\",R,\"overflow\":{}}", "{\"name\":\"a\",R,\"apps\":[]}",
        "{\"name\":\"a\",R,\"apps\":[\"b\",\"b\"]}", "{\"name\":\"a\",R,\"on_overload\":{\"wait\":\"11s\"}}",
        "{\"name\":\"a\",\"rules\":[{\"token_bucket\":{\"rate\":\"1/s\",\"burst\":5.0}}]}",
        "{\"name\":\"a\",\"rules\":[{\"token_bucket\":{\"rate\":\"1/s\",\"burst\":\"5\"}}]}",
        "{\"name\":\"a\",\"rules\":[{\"token_bucket\":{\"rate\":\"1/s\",\"burst\":-0}}]}",
        "{\"name\":\"a\",\"rules\":[{\"token_bucket\":{\"rate\":\"1/s\",\"initial\":2}}]}",
        "{\"name\":\"a\",\"rules\":[{\"leaky_bucket\":{\"rate\":\"1/s\",\"delay\":1}}]}",
        "{\"name\":\"a\",\"rules\":[{\"smooth_warmup\":{\"rate\":\"1/s\",\"warmup\":\"1s\",\"cold_factor\":1}}]}",
        "{\"name\":\"a\",\"rules\":[{\"smooth_warmup\":{\"rate\":\"1/s\",\"warmup\":\"1s\",\"cold_factor\":1e+1}}]}",
        "{\"name\":\"a\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"calendar\":\"day\",\"window\":\"1s\"}}]}",
        "{\"name\":\"a\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"calendar\":\"day\",\"time_zone\":\"+02:00\"}}]}",
        "{\"name\":\"a\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1s\",\"time_zone\":\"UTC\"}}]}",
        "{\"name\":\"a\",\"rules\":[{\"sliding_window\":{\"limit\":1,\"window\":\"9us\"}}]}",
        "{\"name\":\"a\",\"rules\":[{\"concurrency\":{\"limit\":1,\"ttl\":\"1s\",\"queue\":1}}]}",
        "{\"name\":\"a\",\"rules\":[{\"sliding_log\":{\"limit\":1,\"window\":\"1s\"}},{\"sliding_log\":{\"limit\":1,\"window\":\"1s\"}}]}",
        "{\"name\":\"a\",R,\"key\":[\"Path\"]}", "{\"name\":\"a\",R,\"match\":{}}", "{\"name\":\"\\ud800\",R}",
    })
    void a_document_with_an_error_cannot_be_read(String json) {
        assertThrows(PolicyException.class, () -> PolicyReader.document(json.replace("R", RULES)), json);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '\0', value = {
        "B | 'on' | leases: expected `auto`, `off` or `{ max_share: 10%, term: 1s }`",
        "B | {'max_share':'51%'} | leases.max_share: `51%` is not a whole percentage from 1% to 50%, such as `10%`",
        "B | {'max_share':10} | leases.max_share: expected a share from 1% to 50%, such as `10%`",
        "B | {'term':'99ms'} | leases.term: `99ms` is out of range, expected a duration from 100ms to 2s, such as `1s`",
        "B | {'more':1} | leases.more: unknown field",
        "B,S | {} | leases: rule `slots` is a `concurrency`, whose permits cannot be leased; expected `auto` or `off`",
        "B],'overrides':[{'key':'k','rules':[S]} | {} | leases: in overrides[0], rule `slots` is a `concurrency`, whose permits "
            + "cannot be leased; expected `auto` or `off`",
        "B],'overflow':{'queue':{'max_wait':'1s'}},'apps':['a' | {} | leases: `overflow: queue` books permits in advance; "
            + "expected `auto` or `off`",
        "{'sliding_log':{'limit':1,'window':'9s'}} | {} | leases: rule `sliding_log` is a `sliding_log`, whose window of less "
            + "than 10 s is too short to lease; expected `auto` or `off`",
        "{'leaky_bucket':{'rate':'1/s'}} | {} | leases: rule `leaky_bucket` is a `leaky_bucket`, whose `delay` is not `none`; "
            + "expected `auto` or `off`",
    })
    void leases_are_checked_as_servers_check_them(String rules, String leases, String problem) {
        String json = leased(rules, leases);
        assertEquals(problem, assertThrows(PolicyException.class, () -> PolicyReader.document(json), json).getMessage());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '\0', value = {
        "S | 'auto'", "S | 'off'", "B | {'max_share':'1%','term':'100ms'}",
        "{'fixed_window':{'limit':1,'calendar':'day'}} | {'max_share':'50%','term':'2s'}",
    })
    void leases_are_accepted(String rules, String leases) {
        assertNotNull(PolicyReader.document(leased(rules, leases)));
    }

    private static String leased(String rules, String leases) {
        String given = rules.replace("B", "{'name':'burst','token_bucket':{'rate':'1/s'}}")
            .replace("S", "{'name':'slots','concurrency':{'limit':5,'ttl':'1m'}}");
        return ("{'name':'a','rules':[" + given + "],'leases':" + leases + "}").replace('\'', '"');
    }

    @Test
    void a_response_is_taken_over() {
        Policy policy = PolicyReader.document("{\"name\":\"a\"," + RULES
            + ",\"overflow\":{\"degrade\":{\"response\":{\"status\":503,\"body\":\"busy\",\"headers\":{\"X-A\":\"b\"}}}}}");
        Overflow.Response response = (Overflow.Response) policy.over().result();
        assertEquals(503, response.status());
        assertEquals("b", response.headers().get("x-a"));
    }

    @Test
    void days_begin_where_the_page_says() {
        window("America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
        window("America/Havana", "2023-11-05T12:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z");
        window("Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
        // St John's: at 00:01 of the 7th clocks go back to 23:01 of the 6th, and the window is that of the 7th.
        window("America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    }

    private static void window(String zone, String now, String from, String till) {
        Calendar calendar = new Calendar(Calendar.Unit.DAY, Calendar.zoneOf(zone), zone);
        assertNotNull(calendar.zone());
        long[] window = calendar.windowAround(Instant.parse(now).toEpochMilli() * 1000);
        assertEquals(from, Instant.ofEpochMilli(window[0] / 1000).toString(), zone);
        assertEquals(till, Instant.ofEpochMilli(window[1] / 1000).toString(), zone);
    }

    @Test
    void zones_are_found_without_regard_to_case() {
        assertNotNull(Calendar.zoneOf("europe/BERLIN"));
        assertNotNull(Calendar.zoneOf("EST"));
        assertNotNull(Calendar.zoneOf("EST5EDT"));
        assertNull(Calendar.zoneOf("UTC+1"));
        assertNull(Calendar.zoneOf("SystemV/AST4"));
        assertNull(Calendar.zoneOf(""));
    }

    @Test
    void an_override_ends_and_then_the_rules_of_the_policy_are_in_force_since_that_instant() {
        Policy policy = PolicyReader.published("p", """
            {"version": 7, "state": "active", "app": "shop", "since_ms": 5, "document": {
                "name": "p", "rules": [{"fixed_window": {"limit": 1, "window": "1h"}}],
                "overrides": [{"key": "vip", "until": "2026-12-31T18:00:00Z", "rules": [{"fixed_window": {"limit": 9, "window": "1h"}}]}]
              }}""".getBytes(StandardCharsets.UTF_8));
        long endMs = 1_798_740_000_000L;
        Key vip = Key.of("vip");
        assertEquals(9, policy.rulesOf(vip, endMs - 1).rules().get(0).limit());
        assertEquals(1, policy.rulesOf(vip, endMs).rules().get(0).limit());
        assertEquals(5, policy.sinceMs(vip, 5, endMs - 1));
        assertEquals(endMs, policy.sinceMs(vip, 5, endMs));
        assertEquals(endMs + 1, policy.sinceMs(vip, endMs + 1, endMs + 1));
        assertEquals(5, policy.sinceMs(Key.of("other"), 5, endMs));
    }
}
