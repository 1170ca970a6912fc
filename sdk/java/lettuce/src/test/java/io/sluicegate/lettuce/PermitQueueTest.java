package io.sluicegate.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Acquisition;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import io.sluicegate.testing.Threads;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** Requests that wait in Redis for a permit, by the policies that a server publishes there. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class PermitQueueTest {
    /** Time after which the tickets of a process that asks no more lapse. */
    private static final long TICKET_MS = 2_900;
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private static final String POLICIES = """
        {"policies":[
          {"name":"desk","rules":[{"concurrency":{"limit":1,"ttl":"5m","queue":2}}]},
          {"name":"hall","rules":[{"concurrency":{"limit":5,"ttl":"5m","queue":500}}]},
          {"name":"patient","rules":[{"concurrency":{"limit":1,"ttl":"5m","queue":2}}],"overflow":{"queue":{"max_wait":"300ms"}}},
          {"name":"plain","rules":[{"concurrency":{"limit":1,"ttl":"5m"}}]}
        ]}""";

    private TestRedis redis;
    private TestServer server;
    private DirectGate gate;
    private DirectGate other;

    @BeforeAll
    void start() {
        redis = TestRedis.start();
        server = TestServer.start(POLICIES, redis.uri());
        gate = gate();
        other = gate();
    }

    private DirectGate gate() {
        DirectGate made = Sluicegate.direct(LettucePort.connect(redis.uri())).deadline(Duration.ofSeconds(5)).warmUp(false).build();
        published(made);
        return made;
    }

    private static void published(DirectGate made) {
        TestRedis.await("the policies", () -> {
            try {
                return made.policy("plain").peek("any").mode() == Mode.STORE;
            } catch (SluicegateException e) {
                return false;
            }
        });
    }

    @AfterAll
    void stop() {
        gate.close();
        other.close();
        server.close();
        redis.close();
    }

    private void isFree(String key) {
        TestRedis.await("the permit of " + key, () -> {
            try (Acquisition attempt = other.policy("desk").acquire(key)) {
                return attempt.decision().allowed();
            }
        });
    }

    /** Two requests that have their tickets. */
    private List<CompletableFuture<Acquisition>> waiting(String key) {
        Limiter desk = gate.policy("desk");
        // The rules are in Redis then, so a request is one command.
        desk.peek(key);
        List<CompletableFuture<Acquisition>> waiting = List.of(desk.acquireAsync(key, PATIENCE), desk.acquireAsync(key, PATIENCE));
        // It comes behind both, on the same connection.
        desk.peek(key);
        return waiting;
    }

    @Test
    void a_request_waits_until_its_time_is_over_and_leaves_its_ticket() {
        Limiter desk = gate.policy("desk");
        Acquisition held = other.policy("desk").acquire("over");
        Decision refused = desk.acquire("over", Duration.ofMillis(300)).decision();
        assertTrue(!refused.allowed() && refused.heldUs() >= 300_000 && refused.retryAfterUs() > 0, refused.toString());
        refused = desk.acquireAsync("over", Duration.ofMillis(300)).join().decision();
        assertTrue(!refused.allowed() && refused.heldUs() >= 300_000, refused.toString());
        assertEquals(0, desk.acquire("over", Duration.ZERO).decision().heldUs());
        held.close();
        // A ticket would stand before it.
        assertTrue(other.policy("desk").acquire("over").decision().allowed());
    }

    @Test
    void a_request_gets_the_permit_that_another_program_gives_back() {
        Acquisition held = other.policy("desk").acquire("next");
        List<CompletableFuture<Acquisition>> waiting = waiting("next");
        held.close();
        for (CompletableFuture<Acquisition> each : waiting) {
            try (Acquisition passed = each.orTimeout(20, TimeUnit.SECONDS).join()) {
                assertTrue(passed.decision().allowed() && passed.decision().heldUs() > 0, passed.decision().toString());
                assertFalse(other.policy("desk").acquire("next").decision().allowed());
            }
        }
        isFree("next");
    }

    @Test
    void a_queue_that_is_full_refuses_at_once() {
        Acquisition held = gate.policy("desk").acquire("full");
        List<CompletableFuture<Acquisition>> waiting = waiting("full");
        Decision third = other.policy("desk").acquire("full", PATIENCE).decision();
        assertTrue(!third.allowed() && third.heldUs() == 0, third.toString());
        waiting.forEach(each -> each.cancel(true));
        held.close();
        isFree("full");
    }

    @Test
    void who_gives_up_leaves_its_ticket() throws InterruptedException {
        Limiter desk = gate.policy("desk");
        Acquisition held = other.policy("desk").acquire("gone");
        waiting("gone").forEach(each -> assertTrue(each.cancel(true)));
        AtomicInteger interrupted = new AtomicInteger();
        Thread thread = new Thread(() -> {
            Thread.currentThread().interrupt();
            SluicegateException gone = assertThrows(SluicegateException.class, () -> desk.acquire("gone", PATIENCE));
            interrupted.addAndGet(gone.code() == ErrorCode.INTERRUPTED ? 1 : 0);
        });
        thread.start();
        thread.join(20_000);
        assertEquals(1, interrupted.get());
        long closedAt = System.nanoTime();
        held.close();
        isFree("gone");
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - closedAt);
        assertTrue(ms < TICKET_MS, "a ticket stood before it for " + ms + " ms");
    }

    @Test
    void a_policy_may_say_how_long_requests_wait_and_one_without_a_queue_lets_none_wait() {
        Acquisition held = other.policy("patient").acquire("k");
        Decision refused = gate.policy("patient").acquire("k").decision();
        assertTrue(!refused.allowed() && refused.heldUs() >= 300_000, refused.toString());
        held.close();
        SluicegateException mistake = assertThrows(SluicegateException.class, () -> gate.policy("plain").acquire("k", Duration.ZERO));
        assertEquals("op: `acquire` with `max_wait` is not supported by policy `plain`", mistake.getMessage());
    }

    @Test
    void without_redis_requests_wait_for_the_permits_of_the_share() throws Exception {
        try (TestRedis mortal = TestRedis.start(); TestServer publisher = TestServer.start(POLICIES, mortal.uri());
             DirectGate alone = Sluicegate.direct(LettucePort.connect(mortal.uri())).nodes(1).warmUp(false).build()) {
            Limiter desk = alone.policy("desk");
            published(alone);
            assertFalse(publisher.http().isEmpty());
            mortal.signal("KILL");
            TestRedis.await("the share", () -> {
                try (Acquisition attempt = desk.acquire("away")) {
                    return attempt.decision().mode() == Mode.LOCAL && attempt.decision().allowed();
                }
            });
            Acquisition held = desk.acquire("away");
            assertTrue(held.decision().allowed(), held.decision().toString());
            Decision refused = desk.acquire("away", Duration.ofMillis(300)).decision();
            assertTrue(!refused.allowed() && refused.heldUs() >= 300_000 && refused.mode() == Mode.LOCAL, refused.toString());
            CompletableFuture<Acquisition> waiting = desk.acquireAsync("away", PATIENCE);
            held.close();
            Acquisition passed = waiting.orTimeout(20, TimeUnit.SECONDS).join();
            assertTrue(passed.decision().allowed() && passed.decision().mode() == Mode.LOCAL, passed.decision().toString());
            desk.acquireAsync("away", PATIENCE).cancel(true);
            passed.close();
            TestRedis.await("the permit", () -> {
                try (Acquisition attempt = desk.acquire("away")) {
                    return attempt.decision().allowed();
                }
            });
        }
    }

    @Test
    void fifty_requests_of_two_programs_hold_no_threads_and_five_are_inside() {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<CompletableFuture<Void>> all = new ArrayList<>();
        int before = Threads.named("").size();
        for (int number = 0; number < 50; number++) {
            Limiter hall = (number % 2 == 0 ? gate : other).policy("hall");
            all.add(hall.acquireAsync("k", Duration.ofSeconds(60)).thenCompose(attempt -> {
                attempt.orElseThrow();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                inside.decrementAndGet();
                return attempt.closeAsync();
            }));
        }
        assertTrue(Threads.named("").size() <= before + 10, Threads.named("").toString());
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).orTimeout(60, TimeUnit.SECONDS).join();
        assertTrue(most.get() <= 5, most + " at once");
        assertEquals(5, gate.policy("hall").peek("k").remaining());
    }
}
