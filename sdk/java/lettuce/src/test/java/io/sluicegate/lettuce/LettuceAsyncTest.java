package io.sluicegate.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Charged;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.testing.LossyProxy;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.Threads;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Calls whose callers do not wait, at a Redis that stands still. */
class LettuceAsyncTest {
    private static final Limit YEAR = Limit.fixedWindow(10_000, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.DENY);

    private static DirectGate gate(TestRedis redis, Duration deadline) {
        DirectGate gate = Sluicegate.direct(LettucePort.connect(redis.uri())).deadline(deadline).warmUp(false).build();
        Limiter any = gate.limit("mail", YEAR);
        TestRedis.await("a decision", () -> any.peek("other", 1).mode() == Mode.STORE);
        return gate;
    }

    @Test
    void a_thousand_calls_in_flight_share_few_threads_and_those_that_are_cancelled_disturb_no_other() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis, Duration.ofSeconds(10))) {
            Limiter mail = gate.limit("mail", YEAR);
            redis.signal("STOP");
            Set<Thread> before = new HashSet<>(Threads.named(""));
            List<CompletableFuture<Decision>> all = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                all.add(mail.checkAsync("k"));
            }
            assertTrue(all.stream().noneMatch(CompletableFuture::isDone));
            List<Thread> more = new ArrayList<>(Threads.named(""));
            more.removeAll(before);
            assertTrue(more.size() <= 5, more.toString());
            for (int i = 0; i < 1000; i += 2) {
                assertTrue(all.get(i).cancel(true));
            }
            redis.signal("CONT");
            for (int i = 1; i < 1000; i += 2) {
                assertEquals(Mode.STORE, all.get(i).get(20, TimeUnit.SECONDS).mode());
            }
            assertTrue(Threads.named("sluicegate-call").size() <= 4, Threads.named("sluicegate").toString());
            // All of them were sent.
            assertEquals(9000, mail.peek("k", 1).remaining());
            assertFalse(gate.isDegraded());
        }
    }

    @Test
    void a_reply_after_the_deadline_changes_no_answer() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis, Duration.ofMillis(50))) {
            Limiter mail = gate.limit("mail", YEAR);
            redis.signal("STOP");
            CompletableFuture<Decision> check = mail.checkAsync("k");
            CompletableFuture<Decision> refund = mail.refundAsync("k", 1);
            Decision decision = check.get(20, TimeUnit.SECONDS);
            assertFalse(decision.allowed());
            assertTrue(decision.mode() == Mode.DENY || decision.mode() == Mode.SHED, decision.toString());
            ExecutionException failed = assertThrows(ExecutionException.class, () -> refund.get(20, TimeUnit.SECONDS));
            assertEquals(Charged.UNKNOWN, ((SluicegateException) failed.getCause()).charged());
            redis.signal("CONT");
            TestRedis.await("Redis decides again", () -> mail.peek("other", 1).mode() == Mode.STORE);
            assertSame(decision, check.get());
            assertTrue(refund.isCompletedExceptionally());
            assertEquals(10_000, mail.peek("k", 1).remaining());
        }
    }

    @Test
    void a_script_that_was_flushed_is_loaded_again() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis, Duration.ofSeconds(10))) {
            redis.command("SCRIPT", "FLUSH");
            assertEquals(9999, gate.limit("mail", YEAR).checkAsync("k").get(20, TimeUnit.SECONDS).remaining());
        }
    }

    @Test
    void on_overload_of_a_policy_is_for_servers() throws Exception {
        Map<String, Object> wait = Map.of("wait", "5s");
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port())) {
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-20",
                Records.of("fixed-20", "on_overload", wait, "document", Map.of("name", "fixed-20", "on_overload", wait)));
            try (DirectGate gate = Sluicegate.direct(LettucePort.connect("redis://127.0.0.1:" + proxy.port())).deadline(Duration.ofMillis(200))
                .warmUp(false).build()) {
                Limiter limiter = gate.policy("fixed-20");
                TestRedis.await("a decision", () -> limiter.peek("k", 1).mode() == Mode.STORE);
                proxy.delayReplies(300);
                long began = System.nanoTime();
                List<CompletableFuture<Decision>> all = new ArrayList<>();
                for (int i = 0; i < 100; i++) {
                    all.add(limiter.checkAsync("k" + i));
                }
                for (CompletableFuture<Decision> each : all) {
                    Decision decision = each.get(20, TimeUnit.SECONDS);
                    assertEquals(Mode.SHED, decision.mode());
                    assertEquals(Duration.ofMillis(100), decision.retryAfter().orElseThrow());
                }
                assertTrue(System.nanoTime() - began < 4_000_000_000L, "they waited");
            }
        }
    }

    @Test
    void without_redis_the_share_decides() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis, Duration.ofSeconds(10))) {
            redis.stop();
            Limiter mail = gate.limit("mail", Limit.fixedWindow(2, Duration.ofDays(366)));
            List<String> decisions = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Decision each = mail.checkAsync("k").get(20, TimeUnit.SECONDS);
                decisions.add(each.mode() + " " + each.allowed());
            }
            assertEquals(List.of("LOCAL true", "LOCAL true", "LOCAL false"), decisions);
        }
    }
}
