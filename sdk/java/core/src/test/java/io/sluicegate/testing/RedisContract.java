package io.sluicegate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
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
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;

/** What every port to Redis has to keep. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
public abstract class RedisContract {
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
        DirectGate gate = Sluicegate.direct(open(uri)).app("shop").deadline(Duration.ofMillis(500)).build();
        // Until it hears messages.
        TestRedis.pause(200);
        return gate;
    }

    private static String state(String policy, String key) {
        return new String(Keys.state(policy, key.getBytes(StandardCharsets.UTF_8)), StandardCharsets.US_ASCII);
    }

    private void publish(String name, long version, String state, String document) {
        long revision = ++published;
        redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", Long.toString(revision), "#clock", "server", name,
            "{\"version\":" + version + ",\"state\":\"" + state + "\",\"app\":\"shop\",\"document\":" + document + "}");
        redis.command("PUBLISH", "sg:policies", Long.toString(revision));
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
            assertTrue(mail.check(null).allowed());
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

    @Test
    void published_policies_are_followed() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("orders", 1, "active", "{\"name\":\"orders\",\"rules\":[{\"fixed_window\":{\"limit\":2,\"window\":\"1d\"}}]}");
            Limiter orders = gate.policy("orders");
            assertEquals(2, orders.check("k").limit());
            publish("orders", 2, "active", "{\"name\":\"orders\",\"rules\":[{\"fixed_window\":{\"limit\":5,\"window\":\"1d\"}}]}");
            await(() -> orders.peek("k", 1).limit() == 5);
            assertEquals(4, orders.peek("k", 1).remaining());
            publish("orders", 3, "shadow", "{\"name\":\"orders\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1d\"}}]}");
            await(() -> orders.peek("k", 1).limit() == 1);
            Decision shadow = orders.check("k");
            assertTrue(shadow.allowed());
            assertEquals(new Overflow.Shadow(), shadow.overflow());
            // A version that cannot be read: the one that is held stays.
            publish("orders", 4, "active", "{\"name\":\"orders\",\"rules\":[{\"later\":{}}]}");
            TestRedis.pause(300);
            assertEquals(1, orders.peek("k", 1).limit());
            redis.command("HDEL", "sg:{policies}", "orders");
            publish("another", 1, "active", "{\"name\":\"another\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1d\"}}]}");
            await(() -> {
                try {
                    orders.peek("k", 1);
                    return false;
                } catch (SluicegateException e) {
                    return e.code() == ErrorCode.UNKNOWN_POLICY;
                }
            });
            publish("theirs", 1, "active", "{\"name\":\"theirs\",\"apps\":[\"web\"],\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1d\"}}]}");
            await(() -> {
                try {
                    gate.policy("theirs").check("k");
                    return false;
                } catch (SluicegateException e) {
                    return e.code() == ErrorCode.POLICY_NOT_AVAILABLE;
                }
            });
        }
    }

    private static void await(java.util.function.BooleanSupplier holds) {
        for (int tries = 0; tries < 100; tries++) {
            if (holds.getAsBoolean()) {
                return;
            }
            TestRedis.pause(50);
        }
        throw new AssertionError("it did not come true within 5 s");
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
            redis.command("HSET", state("poisoned", "bad"), "a", "b");
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
        try (DirectGate early = gate(redis.uri()); DirectGate late = gate(redis.uri())) {
            Limiter old = early.limit("two", Limit.fixedWindow(10, Duration.ofDays(1)));
            TestRedis.pause(5);
            Limiter fresh = late.limit("two", Limit.fixedWindow(20, Duration.ofDays(1)));
            assertEquals(9, old.check("k").remaining());
            assertEquals(18, fresh.check("k").remaining());
            Decision said = old.check("k");
            assertEquals(17, said.remaining());
            assertEquals(20, said.limit());
            // Rules that nobody knows any more: everything counts as used up.
            redis.command("FLUSHDB");
            assertEquals(9, old.check("k").remaining());
        }
    }

    @Test
    void without_redis_the_share_decides_and_is_paid_later() throws Exception {
        try (TestRedis own = TestRedis.start();
             DirectGate gate = Sluicegate.direct(open(own.uri())).nodes(2).deadline(Duration.ofMillis(200)).build()) {
            Limiter local = gate.limit("local", Limit.fixedWindow(10, Duration.ofDays(366)));
            Limiter allow = gate.limit("allow", Limit.fixedWindow(10, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.ALLOW));
            assertEquals(9, local.check("k").remaining());
            own.command("CLIENT", "KILL", "TYPE", "normal");
            own.stop();
            long began = System.nanoTime();
            List<Boolean> passed = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                Decision said = local.check("k");
                assertEquals(Mode.LOCAL, said.mode());
                assertEquals(5, said.limit());
                passed.add(said.allowed());
            }
            assertEquals(4, passed.stream().filter(each -> each).count());
            assertTrue(System.nanoTime() - began < TimeUnit.SECONDS.toNanos(3));
            assertEquals(Mode.ALLOW, allow.check("k").mode());
            assertThrows(SluicegateException.class, () -> local.refund("k", 1));
            own.restart();
            await(() -> local.peek("k", 1).mode() == Mode.STORE && local.peek("k", 1).remaining() == 6);
            await(() -> allow.peek("k", 1).remaining() == 9);
        }
    }

    @Test
    void a_silent_redis_holds_nobody_longer_than_the_deadline() throws Exception {
        try (TestRedis own = TestRedis.start();
             DirectGate gate = Sluicegate.direct(open(own.uri())).deadline(Duration.ofMillis(50)).build()) {
            Limiter limit = gate.limit("silent", Limit.fixedWindow(1000, Duration.ofDays(366)));
            await(() -> limit.peek("k", 1).mode() == Mode.STORE);
            own.signal("STOP");
            try {
                long longest = 0;
                Mode last = null;
                for (int i = 0; i < 100; i++) {
                    long began = System.nanoTime();
                    last = limit.check("k").mode();
                    longest = Math.max(longest, System.nanoTime() - began);
                }
                assertEquals(Mode.LOCAL, last);
                assertTrue(longest < TimeUnit.MILLISECONDS.toNanos(250), "longest " + longest);
            } finally {
                own.signal("CONT");
            }
            await(() -> limit.peek("k", 1).mode() == Mode.STORE);
        }
    }

    @Test
    void a_check_waits_in_the_queue() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("queue", 1, "active", "{\"name\":\"queue\",\"rules\":[{\"token_bucket\":{\"rate\":\"10/s\",\"burst\":1}}],"
                + "\"overflow\":{\"queue\":{\"max_wait\":\"350ms\"}}}");
            Limiter queue = gate.policy("queue");
            List<CompletableFuture<Decision>> all = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                all.add(queue.checkAsync("k"));
            }
            int allowed = 0;
            for (CompletableFuture<Decision> each : all) {
                Decision said = each.get(5, TimeUnit.SECONDS);
                allowed += said.allowed() ? 1 : 0;
                assertEquals(0, said.waitUs());
                assertNull(said.overflow());
            }
            assertTrue(allowed >= 4 && allowed <= 5, "allowed " + allowed);
        }
    }

    @Test
    void the_turn_of_a_caller_that_gives_up_goes_to_the_next() throws Exception {
        try (DirectGate gate = gate(redis.uri())) {
            publish("turns", 1, "active", "{\"name\":\"turns\",\"rules\":[{\"token_bucket\":{\"rate\":\"1/s\",\"burst\":1}}],"
                + "\"overflow\":{\"queue\":{\"max_wait\":\"3s\"}}}");
            Limiter turns = gate.policy("turns");
            assertTrue(turns.check("k").allowed());
            CompletableFuture<Decision> second = turns.checkAsync("k");
            TestRedis.pause(300);
            second.cancel(true);
            TestRedis.pause(100);
            Decision third = turns.check("k");
            assertTrue(third.allowed());
            assertTrue(third.heldUs() < 900_000, "held " + third.heldUs());
            assertEquals(0, third.waitUs());
        }
    }

    @Test
    void a_thousand_threads_share_one_key() throws Exception {
        try (DirectGate gate = Sluicegate.direct(open(redis.uri())).deadline(Duration.ofSeconds(5)).build()) {
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
