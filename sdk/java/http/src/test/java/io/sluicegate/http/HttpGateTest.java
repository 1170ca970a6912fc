package io.sluicegate.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import io.sluicegate.SluicegateException;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import java.net.URI;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class HttpGateTest {
    private TestServer server;
    private HttpGate gate;

    @BeforeAll
    void start() {
        server = TestServer.start("""
            {"policies":[
              {"name":"login","rules":[{"name":"tries","sliding_log":{"limit":2,"window":"10m"}}]},
              {"name":"llm","rules":[{"name":"tokens","token_bucket":{"rate":"1000/d","burst":1000}}]},
              {"name":"import","apps":["partner"],"rules":[{"fixed_window":{"limit":10,"window":"1h"}}]},
              {"name":"jobs","rules":[{"concurrency":{"limit":1,"ttl":"5m"}}]},
              {"name":"shadow","rules":[{"fixed_window":{"limit":1,"window":"366d"}}],"overflow":"shadow"},
              {"name":"degrade","rules":[{"fixed_window":{"limit":1,"window":"366d"}}],
               "overflow":{"degrade":{"response":{"status":200,"body":"later","headers":{"X-A":"b"}}}}}
            ]}""", null);
        gate = HttpGate.remote(URI.create(server.http())).app("shop").timeout(Duration.ofSeconds(2)).build();
    }

    @AfterAll
    void stop() {
        if (server != null) {
            gate.close();
            server.close();
        }
    }

    @Test
    void a_server_decides() {
        Limiter login = gate.policy("login");
        Decision first = login.check("alice");
        assertEquals(1, first.remaining());
        assertEquals(Mode.STORE, first.mode());
        assertTrue(login.check("alice").allowed());
        assertFalse(login.check("alice").allowed());
        assertEquals(Decision.NEVER, login.check("bob", 3).retryAfterUs());
        assertEquals(1, login.refund("alice", 1).granted());
        assertTrue(login.reset("alice").allowed());
        assertTrue(login.peek(null, 2).allowed());
        assertEquals(2, login.atMost("carol", 5).granted());
        Limiter llm = gate.policy("llm");
        assertEquals("\"tokens\";q=1000;w=86400", HttpFields.of(llm.check("k")).get("RateLimit-Policy"));
        assertTrue(llm.reserve("k", 1000, Duration.ofDays(1)).waitUs() > 0);
    }

    @Test
    void permits_are_held_and_given_back() {
        Limiter jobs = gate.policy("jobs");
        try (var permit = jobs.acquire("eve").orElseThrow()) {
            assertTrue(permit.renew().allowed());
            assertFalse(jobs.acquire("eve").decision().allowed());
        }
        assertTrue(jobs.acquire("eve", "b", 1).allowed());
    }

    @Test
    void overflow_is_the_servers() {
        Limiter shadow = gate.policy("shadow");
        shadow.check(null);
        assertEquals(new Overflow.Shadow(), shadow.check(null).overflow());
        Limiter degrade = gate.policy("degrade");
        degrade.check(null);
        assertEquals(new Overflow.Response(200, Map.of("x-a", "b"), "later"), degrade.check(null).overflow());
    }

    @Test
    void problems_are_exceptions() {
        assertEquals(ErrorCode.UNKNOWN_POLICY, code("none"));
        assertEquals(ErrorCode.POLICY_NOT_AVAILABLE, code("import"));
        assertEquals(ErrorCode.UNSUPPORTED_VERB, code("jobs"));
        try (HttpGate nobody = HttpGate.remote(URI.create("http://127.0.0.1:" + TestRedis.freePort())).build()) {
            assertEquals(ErrorCode.NOT_CHARGED,
                assertThrows(SluicegateException.class, () -> nobody.policy("login").check("k")).code());
        }
    }

    private ErrorCode code(String policy) {
        return assertThrows(SluicegateException.class, () -> gate.policy(policy).check("k")).code();
    }
}
