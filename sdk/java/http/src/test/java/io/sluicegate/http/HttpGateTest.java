package io.sluicegate.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Acquisition;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.GateHealth;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import io.sluicegate.Permit;
import io.sluicegate.SluicegateException;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class HttpGateTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

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
              {"name":"pool","rules":[{"concurrency":{"limit":2,"ttl":"5m","queue":500}}]},
              {"name":"patient","rules":[{"concurrency":{"limit":1,"ttl":"5m","queue":5}}],"overflow":{"queue":{"max_wait":"100ms"}}},
              {"name":"seen","rules":[{"concurrency":{"limit":1,"ttl":"5m"}}],"overflow":"shadow"},
              {"name":"shadow","rules":[{"fixed_window":{"limit":1,"window":"366d"}}],"overflow":"shadow"},
              {"name":"degrade","rules":[{"fixed_window":{"limit":1,"window":"366d"}}],
               "overflow":{"degrade":{"response":{"status":200,"body":"later","headers":{"X-A":"b"}}}}}
            ]}""", null);
        gate = HttpGate.remote(URI.create(server.http())).app("shop").timeout(Duration.ofSeconds(20)).build();
    }

    @AfterAll
    void stop() {
        if (server != null) {
            gate.close();
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
        assertTrue(login.shared().peek("", 2).allowed());
        assertEquals(2, login.atMost("carol", 5).granted());
        Limiter llm = gate.policy("llm");
        assertEquals("\"tokens\";q=1000;w=86400", HttpFields.of(llm.check("k")).get("RateLimit-Policy"));
        assertTrue(llm.reserve("k", 1000, Duration.ofDays(1)).waitUs() > 0);
    }

    @Test
    void a_server_that_is_not_asked_is_healthy() {
        try (HttpGate quiet = HttpGate.remote(URI.create(server.http() + "/")).timeout(Duration.ofSeconds(20)).build()) {
            assertEquals(GateHealth.up(server.http()), quiet.health());
        }
        gate.require(List.of("login", "jobs"));
        assertEquals("policy: unknown policy `none`; app: policy `import` is not available to app `shop`",
            assertThrows(SluicegateException.class, () -> gate.require(List.of("none", "login", "import"))).getMessage());
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
    void a_request_waits_for_a_permit_longer_than_the_timeout_of_the_gate() {
        try (HttpGate quick = HttpGate.remote(URI.create(server.http())).timeout(Duration.ofSeconds(1)).warmUp(false).build()) {
            Limiter pool = quick.policy("pool");
            assertTrue(pool.acquire("slow", "all", 2).allowed());
            Decision refused = pool.acquire("slow", Duration.ofMillis(1300)).decision();
            assertFalse(refused.allowed());
            assertTrue(refused.heldUs() >= 1_300_000, refused.toString());
            assertTrue(pool.acquireAsync("slow", Duration.ofMillis(1300)).join().decision().heldUs() >= 1_300_000);
            Decision ofThePolicy = quick.policy("patient").acquire("slow", "a", 1);
            assertTrue(ofThePolicy.allowed() && !quick.policy("patient").acquire("slow", "b", 1).allowed());
        }
    }

    @Test
    void a_wait_where_no_rule_has_a_queue_is_a_mistake() {
        SluicegateException mistake = assertThrows(SluicegateException.class, () -> gate.policy("jobs").acquire("none", Duration.ZERO));
        assertEquals(ErrorCode.UNSUPPORTED_VERB, mistake.code());
        assertEquals("op: `acquire` with `max_wait` is not supported by policy `jobs`", mistake.getMessage());
    }

    @Test
    void waiters_do_not_keep_a_release_from_the_server() {
        Limiter pool = gate.policy("pool");
        Permit first = pool.acquire("many", 2, null).orElseThrow();
        List<CompletableFuture<Acquisition>> waiters = new ArrayList<>();
        for (int waiter = 0; waiter < 200; waiter++) {
            waiters.add(pool.acquireAsync("many", PATIENCE));
        }
        first.closeAsync().orTimeout(10, TimeUnit.SECONDS).join();
        try (Acquisition passed = (Acquisition) CompletableFuture.anyOf(waiters.toArray(CompletableFuture[]::new)).orTimeout(10, TimeUnit.SECONDS).join()) {
            assertTrue(passed.decision().allowed() && passed.decision().heldUs() > 0, passed.decision().toString());
        }
        giveUp(waiters);
        TestRedis.await("all permits", () -> pool.peek("many").remaining() == 2);
    }

    // Those that have a permit already have an owner, who closes it.
    private static void giveUp(List<CompletableFuture<Acquisition>> waiters) {
        for (CompletableFuture<Acquisition> each : waiters) {
            if (!each.cancel(true) && !each.isCancelled()) {
                each.join().close();
            }
        }
    }

    @Test
    void who_gives_up_waiting_leaves_no_place_taken() throws InterruptedException {
        Limiter pool = gate.policy("pool");
        Permit first = pool.acquire("gone", 2, null).orElseThrow();
        CountDownLatch interrupted = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            Thread.currentThread().interrupt();
            assertEquals(ErrorCode.INTERRUPTED, assertThrows(SluicegateException.class, () -> pool.acquire("gone", PATIENCE)).code());
            interrupted.countDown();
        });
        thread.start();
        List<CompletableFuture<Acquisition>> cancelled = new ArrayList<>();
        for (int waiter = 0; waiter < 20; waiter++) {
            cancelled.add(pool.acquireAsync("gone", PATIENCE));
        }
        cancelled.subList(0, 10).forEach(each -> each.cancel(true));
        first.close();
        giveUp(cancelled);
        assertTrue(interrupted.await(20, TimeUnit.SECONDS));
        TestRedis.await("all permits", () -> pool.peek("gone").remaining() == 2);
        assertTrue(pool.acquire("gone", 2, Duration.ZERO).decision().allowed());
        assertEquals(GateHealth.State.UP, gate.health().state());
    }

    @Test
    void overflow_is_the_servers() {
        Limiter shadow = gate.policy("shadow").shared();
        shadow.check("");
        assertEquals(new Overflow.Shadow(), shadow.check("").overflow());
        Limiter seen = gate.policy("seen");
        try (var held = seen.acquire("eve").orElseThrow(); var over = seen.acquire("eve").orElseThrow()) {
            assertNull(held.decision().overflow());
            assertEquals(new Overflow.Shadow(), over.decision().overflow());
            assertTrue(over.renew().allowed() && seen.renew("eve", over.id()).allowed());
        }
        assertEquals(1, seen.peek("eve", 1).remaining());
        Limiter degrade = gate.policy("degrade").shared();
        degrade.check("");
        assertEquals(new Overflow.Response(200, Map.of("x-a", "b"), "later"), degrade.check("").overflow());
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

    @Test
    void what_was_estimated_is_settled_once() {
        Limiter llm = gate.policy("llm");
        assertEquals(500, llm.check("settle", 500).remaining());
        // What was charged, what it came to; what is given back, taken, missing and left.
        long[][] table = {{500, 380, 120, 0, 0, 620}, {20, 20, 0, 0, 0, 620}, {10, 30, 0, 20, 0, 600}, {100, 0, 100, 0, 0, 700},
            {1, 2001, 0, 700, 1300, 0}};
        for (int place = 0; place < table.length; place++) {
            long[] row = table[place];
            Settlement settled = gate.settle(new Check("llm", "settle", row[0]), "id-" + place, row[1]);
            assertEquals(row[2] + " " + row[3] + " " + row[4], settled.refunded() + " " + settled.taken() + " " + settled.missing());
            // A day's thousand: some come back while the test runs.
            assertTrue(settled.decision().remaining() >= row[5] && settled.decision().remaining() < row[5] + 5, settled.toString());
            SluicegateException again = assertThrows(SluicegateException.class,
                () -> gate.settle(new Check("llm", "settle", 500), "id-" + 0, 380));
            assertEquals(ErrorCode.SERVER, again.code());
            assertEquals(409, again.status());
        }
        assertEquals(ErrorCode.COST_RANGE, assertThrows(SluicegateException.class, () -> gate.settle(new Check("llm", "k", 0), "id", 1)).code());
        assertEquals(ErrorCode.COST_RANGE, assertThrows(SluicegateException.class, () -> gate.settle(new Check("llm", "k"), "id", -1)).code());
        assertEquals(ErrorCode.ID_LENGTH, assertThrows(SluicegateException.class, () -> gate.settle(new Check("llm", "k"), "", 1)).code());
        assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, () -> gate.settle(new Check("none", "k"), "id", 1)).code());
        assertEquals(0, assertThrows(SluicegateException.class, () -> gate.settle(new Check("none", "k"), "id", 1)).status());
        assertThrows(NullPointerException.class, () -> new Check("llm", null));
        assertEquals(ErrorCode.KEY_EMPTY, assertThrows(SluicegateException.class, () -> new Check("llm", "")).code());
    }

    @Test
    void a_server_says_why() {
        Explanation explanation = gate.explain(new Check("login", "explain", 3));
        assertEquals("login", explanation.policy());
        assertEquals(null, explanation.apps());
        assertEquals("reject local false", explanation.overflow() + " " + explanation.onStoreFailure() + " " + explanation.isOverride());
        assertFalse(explanation.decision().allowed());
        assertEquals(List.of(new Explanation.Rule("tries", "sliding_log", 2, Duration.ofMinutes(10),
            new Explanation.Left(false, 2, Decision.NEVER, 0))), explanation.rules());
        assertEquals(1, gate.explain(new Check("login", "explain")).wouldCharge());
        // Nothing was charged.
        assertEquals(1, gate.policy("login").check("explain").remaining());
        assertEquals(ErrorCode.POLICY_NOT_AVAILABLE, assertThrows(SluicegateException.class, () -> gate.explain(new Check("import", "k"))).code());
    }

    @Test
    void each_of_several_checks_has_an_answer_of_its_own() {
        List<CheckAnswer> answers = gate.checkEach(List.of(new Check("login", "each", 2), new Check("none", "each"), new Check("login", "each"),
            Check.shared("import", 1), new Check("jobs", "each")));
        assertTrue(answers.get(0).orThrow().allowed());
        assertEquals("login", answers.get(0).decision().policy());
        assertFalse(answers.get(2).orThrow().allowed());
        assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, answers.get(1)::orThrow).code());
        assertEquals(ErrorCode.POLICY_NOT_AVAILABLE, answers.get(3).problem().code());
        assertEquals(ErrorCode.UNSUPPORTED_VERB, answers.get(4).problem().code());
        assertEquals(ErrorCode.SERVER, assertThrows(SluicegateException.class, () -> gate.checkEach(List.of())).code());
    }

    @Test
    void several_checks_are_charged_together_or_not_at_all() {
        Check tokens = new Check("llm", "all", 400);
        AtomicAnswer refused = gate.checkAll(List.of(tokens, new Check("login", "all", 3)));
        assertFalse(refused.allowed());
        assertEquals(1, refused.refused());
        assertEquals(List.of("login"), refused.decisions().stream().map(Decision::policy).toList());
        assertEquals(1000, gate.policy("llm").peek("all", 1).remaining());
        AtomicAnswer passed = gate.checkAll(List.of(tokens, new Check("login", "all", 2)));
        assertTrue(passed.allowed());
        assertEquals(AtomicAnswer.NONE, passed.refused());
        assertEquals(List.of(600L, 0L), passed.decisions().stream().map(Decision::remaining).toList());
        assertEquals(ErrorCode.UNKNOWN_POLICY,
            assertThrows(SluicegateException.class, () -> gate.checkAll(List.of(tokens, new Check("none", "all")))).code());
    }

    @Test
    void an_address_of_no_server_and_a_token_that_no_field_can_have_are_found_at_the_start() {
        for (String wrong : List.of("", "gate:8080", "ftp://gate", "resp://gate:6380", "http:/gate", "http://gate:65536", "http://u:s3cret@gate/?token=s3cret")) {
            String message = assertThrows(IllegalArgumentException.class, () -> HttpGate.remote(URI.create(wrong)), wrong).getMessage();
            assertTrue(message.contains("is not an address; expected `http://HOST:PORT`"), message);
            assertFalse(message.contains("s3cret"), message);
        }
        for (String token : List.of("s3cret\r\nX: y", "s3cret\0", "s3cret\u2028")) {
            assertEquals("token: has a character that a header field cannot have",
                assertThrows(IllegalArgumentException.class, () -> HttpGate.remote(URI.create("http://gate")).token(token)).getMessage());
        }
    }
}
