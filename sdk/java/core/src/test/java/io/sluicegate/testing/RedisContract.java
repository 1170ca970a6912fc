package io.sluicegate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Carry;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.Overflow;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.engine.FailureLives;
import io.sluicegate.internal.engine.RandomLives;
import io.sluicegate.internal.engine.RedisVectors;
import io.sluicegate.internal.redis.Keys;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;

/** The tests that every port to Redis must pass. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
public abstract class RedisContract {
    /** The deadline of tests that are not about deadlines. */
    static final Duration LONG = Duration.ofSeconds(10);

    private TestRedis redis;
    private long published;

    /** Opens the port under test. */
    protected abstract RedisPort open(String uri);

    @BeforeAll
    void start() {
        redis = TestRedis.start();
    }

    @AfterAll
    void stop() {
        if (redis != null) {
            redis.close();
        }
    }

    private DirectGate gate(String uri) {
        return ready(Sluicegate.direct(open(uri)).app("shop").deadline(LONG).build());
    }

    /** Waits for the connection, which may take longer to make than a test assumes. */
    static DirectGate ready(DirectGate gate) {
        Limiter any = gate.limit("ready", Limit.fixedWindow(1, Duration.ofDays(1)));
        TestRedis.await("a connection", () -> any.peek("k", 1).mode() == Mode.STORE);
        return gate;
    }

    private static String state(String policy, String key) {
        return new String(Keys.state(policy, key), StandardCharsets.US_ASCII);
    }

    private void publish(String name, String record) {
        String revision = Long.toString(++published);
        redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", revision, "#clock", "server", name, record);
        redis.command("PUBLISH", "sg:policies", revision);
    }

    @TestFactory
    Stream<DynamicTest> redis_answers_as_every_other() {
        RedisPort port = open(redis.uri());
        RedisVectors vectors = new RedisVectors(port);
        return Checkout.lives().stream().map(Vector::load)
            .map(life -> DynamicTest.dynamicTest(life.name(), () -> vectors.live(life))).onClose(port::close);
    }

    @Test
    void the_kernel_answers_as_redis_does() throws Exception {
        try (RedisPort port = open(redis.uri())) {
            new RandomLives(port).live(150);
        }
    }

    @Test
    void what_is_said_while_redis_is_away_is_that_of_the_lives() throws Exception {
        try (TestRedis own = TestRedis.start(); RedisPort port = open(own.uri())) {
            assertEquals(List.of(), FailureLives.run(port, own));
        }
    }

    @Test
    void a_limit_that_was_lowered_gives_nothing_again_in_an_outage() throws Exception {
        try (TestRedis own = TestRedis.start(); RedisPort port = open(own.uri())) {
            assertEquals(Collections.nCopies(6, 1000L), FailureLives.passedAfterALoweredLimit(port, own));
        }
    }

    @Test
    void a_gate_asks_before_it_decides_and_leaves_nothing() {
        try (TestRedis own = TestRedis.start(); DirectGate gate = Sluicegate.direct(open(own.uri())).build()) {
            assertTrue(own.command("INFO", "memory").toString().contains("number_of_cached_scripts:1"));
            assertEquals(0L, own.command("DBSIZE"));
            assertFalse(gate.isDegraded());
        }
    }

    @Test
    void a_limit_in_code_is_decided_in_redis() {
        try (DirectGate gate = gate(redis.uri())) {
            Limiter mail = gate.limit("mail", Limit.tokenBucket(10, Duration.ofHours(1)).burst(2));
            assertEquals(1, mail.check("a").remaining());
            assertTrue(mail.check("a").allowed());
            Decision refused = mail.check("a");
            assertFalse(refused.allowed());
            assertEquals(Mode.STORE, refused.mode());
            assertEquals(Mode.REMEMBERED, mail.check("a").mode());
            assertEquals(1, mail.refund("a", 1).granted());
            assertTrue(mail.check("a").allowed());
            assertEquals(ErrorCode.UNSUPPORTED_VERB,
                assertThrows(SluicegateException.class, () -> mail.acquire("a")).code());
            assertEquals(ErrorCode.KEY_EMPTY, assertThrows(SluicegateException.class, () -> mail.check("")).code());
            assertTrue(mail.shared().check("").allowed());
            assertEquals(2, mail.atMost("b", 5).granted());
            assertTrue(mail.reset("b").allowed());
            assertTrue(mail.peek("b", 2).allowed());
            assertTrue(mail.reserve("b", 2, Duration.ZERO).allowed());
            assertTrue(mail.reserve("b", 1, Duration.ofHours(1)).waitUs() > 0);
        }
    }

    @Test
    void permits_are_held_and_given_back() {
        try (DirectGate gate = gate(redis.uri())) {
            Limiter jobs = gate.limit("jobs", Limit.concurrency(1, Duration.ofMinutes(1)));
            try (var permit = jobs.acquire("eve").orElseThrow()) {
                assertTrue(permit.renew().allowed());
                assertFalse(jobs.acquire("eve").decision().allowed());
            }
            assertTrue(jobs.acquire("eve", "again", 1).allowed());
            assertFalse(jobs.acquire("eve", "again", 1).retryAfter().isPresent());
            assertTrue(jobs.release("eve", "again").allowed());
            assertFalse(jobs.release("eve", "again").allowed());
        }
    }

    private static boolean isRefused(Limiter limiter, ErrorCode code) {
        try {
            limiter.peek("k", 1);
            return false;
        } catch (SluicegateException e) {
            return e.code() == code;
        }
    }

    @Test
    void published_policies_are_followed() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("orders", Records.of("fixed-2"));
            Limiter orders = gate.policy("orders");
            assertEquals(2, orders.check("k").limit());
            publish("orders", Records.of("fixed-5", "version", 2L));
            await(() -> orders.peek("k", 1).limit() == 5);
            assertEquals(4, orders.peek("k", 1).remaining());
            publish("orders", Records.of("fixed-1", "version", 3L, "overflow", Map.of("kind", "shadow")));
            await(() -> orders.peek("k", 1).limit() == 1);
            Decision shadow = orders.check("k");
            assertTrue(shadow.allowed());
            assertEquals(new Overflow.Shadow(), shadow.overflow());
            redis.command("HDEL", "sg:{policies}", "orders");
            publish("another", Records.of("fixed-1"));
            await(() -> isRefused(orders, ErrorCode.UNKNOWN_POLICY));
            publish("theirs", Records.of("fixed-1", "apps", List.of("web")));
            await(() -> isRefused(gate.policy("theirs"), ErrorCode.POLICY_NOT_AVAILABLE));
        }
    }

    @Test
    void a_damaged_record_changes_nothing_and_one_of_a_later_version_is_decided_by_no_more() {
        try (DirectGate gate = gate(redis.uri())) {
            publish("versions", Records.of("fixed-10"));
            publish("seen", Records.of("fixed-1"));
            Limiter versions = gate.policy("versions");
            Limiter seen = gate.policy("seen");
            assertEquals(9, versions.check("k").remaining());
            assertEquals(1, seen.peek("k", 1).limit());
            publish("versions", Records.of("fixed-20", "life_ms", "1"));
            publish("seen", Records.of("fixed-2", "version", 2L));
            await(() -> seen.peek("k", 1).limit() == 2);
            assertEquals(8, versions.check("k").remaining());
            publish("versions", Records.of("fixed-20", "record", 2L));
            await(() -> isRefused(versions, ErrorCode.UNREADABLE_POLICY));
            assertEquals("policy: `versions` cannot be read: record: `2` is of a later version; this program reads 1",
                assertThrows(SluicegateException.class, () -> versions.check("k")).getMessage());
            assertEquals(1, seen.check("k").remaining());
            publish("versions", Records.of("fixed-10", "version", 3L));
            await(() -> !isRefused(versions, ErrorCode.UNREADABLE_POLICY));
            assertEquals(7, versions.check("k").remaining());
        }
    }

    private static void await(java.util.function.BooleanSupplier holds) {
        TestRedis.await("what is expected", holds);
    }

    @Test
    void an_answer_that_is_lost_is_charged_once() throws IOException {
        try (LossyProxy proxy = new LossyProxy(redis.port()); DirectGate gate = gate("redis://127.0.0.1:" + proxy.port())) {
            Limiter once = gate.limit("once", Limit.fixedWindow(100, Duration.ofDays(1)).onStoreFailure(OnStoreFailure.DENY));
            assertEquals(99, once.check("k").remaining());
            proxy.swallowNextReply();
            SluicegateException lost = assertThrows(SluicegateException.class, () -> once.refund("k", 1));
            assertEquals(ErrorCode.PERHAPS_CHARGED, lost.code());
            assertTrue(proxy.hasSwallowed());
            await(() -> once.peek("k", 1).mode() == Mode.STORE);
            assertEquals(100, once.peek("k", 1).remaining());
            proxy.swallowNextReply();
            assertEquals(Mode.DENY, once.check("k").mode());
            await(() -> once.peek("k", 1).mode() == Mode.STORE);
            assertEquals(99, once.peek("k", 1).remaining());
        }
    }

    @Test
    void a_key_that_holds_a_hash_is_no_sign_that_redis_is_gone() {
        try (DirectGate gate = gate(redis.uri())) {
            Limiter policy = gate.limit("poisoned", Limit.fixedWindow(100, Duration.ofDays(1)));
            redis.command("HSET", state("limit:poisoned", "bad"), "a", "b");
            for (int i = 0; i < 30; i++) {
                assertEquals(Mode.DENY, policy.check("bad").mode());
            }
            assertEquals(Mode.STORE, policy.check("good").mode());
        }
    }

    @Test
    void a_script_that_was_flushed_is_loaded_again() {
        try (DirectGate gate = gate(redis.uri())) {
            Limiter policy = gate.limit("flushed", Limit.fixedWindow(100, Duration.ofDays(1)));
            assertEquals(99, policy.check("k").remaining());
            redis.command("SCRIPT", "FLUSH");
            assertEquals(98, policy.check("k").remaining());
        }
    }

    @Test
    void the_rules_that_were_taken_over_later_decide() {
        DeafPort port = new DeafPort(open(redis.uri()));
        try (DirectGate early = ready(Sluicegate.direct(port).app("shop").deadline(LONG).build());
             DirectGate late = gate(redis.uri())) {
            publish("two", Records.of("fixed-10"));
            Limiter old = early.policy("two");
            assertEquals(9, old.check("k").remaining());
            port.closeEyes();
            publish("two", Records.of("fixed-20", "version", 2L));
            assertEquals(18, late.policy("two").check("k").remaining());
            Decision decision = old.check("k");
            assertEquals(17, decision.remaining());
            assertEquals(20, decision.limit());
            redis.command("FLUSHDB");
            assertEquals(9, old.check("k").remaining());
        }
    }

    /** A port that receives no messages and, once it is {@link #closeEyes}, has no look at policies: its gate stays with those that it has. */
    private static final class DeafPort implements RedisPort {
        private final RedisPort port;
        private final AtomicInteger looks = new AtomicInteger();
        private volatile boolean isBlind;

        DeafPort(RedisPort port) {
            this.port = port;
        }

        /** Refuses further looks, and waits for those that are under way: a gate that has just begun looks in the background as well. */
        void closeEyes() {
            isBlind = true;
            TestRedis.await("the looks", () -> looks.get() == 0);
        }

        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
            if (!new String(command[0], StandardCharsets.US_ASCII).equals("HMGET")) {
                return port.call(timeoutNanos, command);
            }
            looks.incrementAndGet();
            try {
                if (isBlind) {
                    throw new Failure("no look", false, false);
                }
                return port.call(timeoutNanos, command);
            } finally {
                looks.decrementAndGet();
            }
        }

        @Override
        public void subscribe(String channel, java.util.function.Consumer<String> listener) {
            // No message arrives.
        }

        @Override
        public void close() {
            port.close();
        }
    }

    @Test
    void of_two_rules_no_more_passes_in_an_outage_than_either_has_left() throws Exception {
        try (TestRedis own = TestRedis.start(); DirectGate gate = gate(own.uri())) {
            // The bucket decides each time: it has the least left.
            Limiter mail = gate.limit("mail", Limit.fixedWindow(100, Duration.ofDays(366)).named("year")
                .and(Limit.tokenBucket(1, Duration.ofMillis(1)).burst(5).named("bucket")));
            int passed = 0;
            while (passed < 90) {
                Decision decision = mail.check("k");
                passed += decision.allowed() && decision.mode() == Mode.STORE ? 1 : 0;
            }
            own.stop();
            TestRedis.await("a decision by the share", () -> mail.peek("k", 1).mode() == Mode.LOCAL);
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            for (Decision decision = mail.check("k"); System.nanoTime() < until && !"year".equals(decision.rule()) | decision.allowed(); decision = mail.check("k")) {
                passed += decision.allowed() ? 1 : 0;
            }
            assertEquals(100, passed);
        }
    }

    @Test
    void a_program_that_starts_late_with_an_earlier_version_decides_by_the_later_one() throws Exception {
        long since = System.currentTimeMillis() - 60_000;
        try (TestRedis own = TestRedis.start()) {
            own.command("HSET", "sg:{policies}", "#format", "1", "#revision", "2", "p", Records.of("fixed-3", "version", 2L, "since_ms", since + 2000));
            try (DirectGate gate = gate(own.uri())) {
                assertEquals(2, gate.policy("p").check("k").remaining());
            }
            own.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "p", Records.of("fixed-10", "since_ms", since));
            try (DirectGate late = gate(own.uri())) {
                assertEquals(3, late.policy("p").check("k").limit());
                assertEquals(0, late.policy("p").check("k").remaining());
                assertFalse(late.policy("p").check("k").allowed());
                assertEquals(9, late.policy("p").check("new").remaining());
            }
        }
    }

    @Test
    void a_limit_in_code_always_decides_and_takes_usage_over() {
        try (DirectGate one = gate(redis.uri()); DirectGate other = gate(redis.uri())) {
            Limiter ten = one.limit("brought", Limit.fixedWindow(10, Duration.ofDays(366)));
            Limiter twenty = other.limit("brought", Limit.fixedWindow(20, Duration.ofDays(366)));
            assertEquals(9, ten.check("k").remaining());
            assertEquals(18, twenty.check("k").remaining());
            Decision decision = ten.check("k");
            assertEquals(7, decision.remaining());
            assertEquals(10, decision.limit());
            assertEquals("limit", decision.rule());
            assertEquals("brought", decision.policy());
            Limit two = Limit.fixedWindow(5, Duration.ofDays(366)).named("limit").and(Limit.tokenBucket(2, Duration.ofHours(1)).named("slow"));
            decision = one.limit("brought", two).check("k");
            assertEquals(1, decision.remaining());
            assertEquals("limit", one.limit("brought", two).peek("k", 2).rule());
            assertEquals(5, one.limit("brought", Limit.fixedWindow(6, Duration.ofDays(366)).carry(Carry.RESET)).check("k").remaining());
            // The rules of the state cannot be read: all counts as used up.
            redis.command("SET", state("limit:brought", "k"), "\u0001 no rules");
            assertFalse(ten.check("k").allowed());
            // It leaves no key of its own.
            assertEquals(0L, redis.command("EXISTS", new String(Keys.rules("limit:brought", "000000000000"), StandardCharsets.US_ASCII)));
        }
    }

    @Test
    void every_limit_in_code_is_decided_in_redis_as_in_memory() {
        try (DirectGate gate = gate(redis.uri()); InMemoryGate memory = Sluicegate.inMemory(java.time.Clock.systemUTC())) {
            int place = 0;
            for (Limit limit : Limits.ALL) {
                String name = "all-" + place++;
                Limiter here = memory.limit(name, limit);
                Limiter there = gate.limit(name, limit);
                if (Limits.holdsPermits(limit)) {
                    assertEquals(here.acquire("k", "id", 1).remaining(), there.acquire("k", "id", 1).remaining(), name);
                } else {
                    Decision own = here.check("k");
                    Decision decision = there.check("k");
                    assertEquals(own.limit() + " " + own.remaining() + " " + own.rule() + " " + own.quotas(),
                        decision.limit() + " " + decision.remaining() + " " + decision.rule() + " " + decision.quotas(), name);
                }
            }
        }
    }

    @Test
    void without_redis_the_share_decides_and_is_paid_later() throws Exception {
        try (TestRedis own = TestRedis.start();
             DirectGate gate = ready(Sluicegate.direct(open(own.uri())).nodes(2).deadline(LONG).build())) {
            Limiter local = gate.limit("local", Limit.fixedWindow(10, Duration.ofDays(366)));
            Limiter allow = gate.limit("allow", Limit.fixedWindow(10, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.ALLOW));
            assertEquals(9, local.check("k").remaining());
            own.command("CLIENT", "KILL", "TYPE", "normal");
            own.stop();
            List<Boolean> passed = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                Decision decision = local.check("k");
                assertEquals(Mode.LOCAL, decision.mode());
                assertEquals(5, decision.limit());
                passed.add(decision.allowed());
            }
            assertEquals(4, passed.stream().filter(each -> each).count());
            assertEquals(Mode.ALLOW, allow.check("k").mode());
            assertThrows(SluicegateException.class, () -> local.refund("k", 1));
            own.restart();
            await(() -> local.peek("k", 1).mode() == Mode.STORE && local.peek("k", 1).remaining() == 6);
            await(() -> allow.peek("k", 1).remaining() == 9);
        }
    }

    @Test
    void a_check_waits_in_the_queue() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("queue", Records.of("queue"));
            Limiter queue = gate.policy("queue");
            queue.peek("k", 1);
            long began = System.nanoTime();
            List<CompletableFuture<Decision>> all = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                all.add(queue.checkAsync("k"));
            }
            int allowed = 0;
            for (CompletableFuture<Decision> each : all) {
                Decision decision = each.get(20, TimeUnit.SECONDS);
                allowed += decision.allowed() ? 1 : 0;
                assertEquals(0, decision.waitUs());
                assertNull(decision.overflow());
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            assertTrue(allowed >= 4 && allowed <= 1 + 4 * seconds, allowed + " in " + seconds + " s");
        }
    }

    @Test
    void the_turn_of_a_caller_that_gives_up_goes_to_the_next() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("turns", Records.of("turns"));
            Limiter turns = gate.policy("turns");
            assertTrue(turns.check("k").allowed());
            CompletableFuture<Decision> second = turns.checkAsync("k");
            await(() -> turns.peek("k", 1).retryAfterUs() > 3_000_000);
            second.cancel(true);
            Decision[] third = {turns.check("k")};
            await(() -> third[0].allowed() || (third[0] = turns.check("k")).allowed());
            // Without the vacant turn it would be held for 5 s.
            assertTrue(third[0].heldUs() < 4_000_000, "held " + third[0].heldUs());
            assertEquals(0, third[0].waitUs());
        }
    }

    @Test
    void a_thousand_threads_share_one_key() throws Exception {
        try (DirectGate gate = ready(Sluicegate.direct(open(redis.uri())).deadline(Duration.ofSeconds(10)).build())) {
            Limiter hot = gate.limit("hot", Limit.fixedWindow(300, Duration.ofDays(366)));
            hot.peek("k", 1);
            List<CompletableFuture<Decision>> all = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                all.add(hot.checkAsync("k"));
            }
            int allowed = 0;
            for (CompletableFuture<Decision> each : all) {
                allowed += each.get(30, TimeUnit.SECONDS).allowed() ? 1 : 0;
            }
            assertEquals(300, allowed);
        }
    }
}
