package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.internal.AsyncCalls;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.Threads;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** Calls whose callers do not wait, on a port that answers when the test says so. */
class AsyncTest {
    private static final int CALLS_MAX = 10_000;

    /** Holds back all replies to commands without a waiting caller, until it is opened. */
    private static final class HeldPort implements AsyncRedisPort {
        private final Queue<CompletableFuture<Object>> held = new ConcurrentLinkedQueue<>();
        private boolean open;
        private int closed;

        /** A check that passes. */
        private static byte[] reply() {
            byte[] reply = new byte[27];
            reply[0] = 1;
            reply[2] = 1;
            return reply;
        }

        @Override
        public Object call(long timeoutNanos, byte[]... command) {
            return reply();
        }

        @Override
        public synchronized CompletableFuture<Object> send(long timeoutNanos, byte[]... command) {
            if (open) {
                return CompletableFuture.completedFuture(reply());
            }
            CompletableFuture<Object> reply = new CompletableFuture<>();
            held.add(reply);
            return reply;
        }

        void open(boolean opens) {
            synchronized (this) {
                open = opens;
            }
            for (CompletableFuture<Object> each = held.poll(); opens && each != null; each = held.poll()) {
                each.complete(reply());
            }
        }

        @Override
        public void subscribe(String channel, Consumer<String> listener) {
            // Nothing is published.
        }

        @Override
        public void close() {
            closed++;
        }
    }

    private final HeldPort port = new HeldPort();
    private final DirectGate gate = Sluicegate.direct(port).deadline(Duration.ofSeconds(10)).warmUp(false).build();
    private final Limiter limiter = gate.limit("mail", Limit.fixedWindow(1_000_000, Duration.ofDays(366)));

    private List<CompletableFuture<Decision>> begin(int calls) {
        List<CompletableFuture<Decision>> all = new ArrayList<>();
        for (int call = 0; call < calls; call++) {
            CompletableFuture<Decision> begun = limiter.checkAsync("k");
            // Calls before leave a moment after their futures are completed.
            while (begun.isCompletedExceptionally()) {
                Thread.onSpinWait();
                begun = limiter.checkAsync("k");
            }
            all.add(begun);
        }
        return all;
    }

    private static ErrorCode failure(CompletableFuture<Decision> call) {
        ExecutionException failed = assertThrows(ExecutionException.class, () -> call.get(20, TimeUnit.SECONDS));
        return ((SluicegateException) failed.getCause()).code();
    }

    @Test
    void a_wait_where_no_rule_has_a_queue_is_refused_before_anything_is_sent() {
        Limiter pool = gate.limit("pool", Limit.concurrency(5, Duration.ofSeconds(30)));
        SluicegateException refused = assertThrows(SluicegateException.class, () -> pool.acquire("k", Duration.ofSeconds(1)));
        assertEquals(ErrorCode.UNSUPPORTED_VERB, refused.code());
        assertEquals("op: `acquire` with `max_wait` is not supported by policy `pool`", refused.getMessage());
        CompletableFuture<Acquisition> later = pool.acquireAsync("k", Duration.ZERO);
        assertEquals(refused.getMessage(), assertThrows(ExecutionException.class, later::get).getCause().getMessage());
        assertTrue(port.held.isEmpty());
    }

    @Test
    void calls_that_wait_for_an_answer_hold_no_thread_and_their_number_is_bounded() throws Exception {
        for (int round = 0; round < 2; round++) {
            port.open(false);
            List<CompletableFuture<Decision>> all = begin(CALLS_MAX);
            assertEquals(1024, port.held.size());
            assertEquals(0, all.stream().filter(CompletableFuture::isDone).count());
            assertEquals(ErrorCode.NOT_CHARGED, failure(limiter.checkAsync("k")));
            // Some of these are sent, and some wait for a place.
            for (int call = 0; call < CALLS_MAX; call += 2) {
                assertTrue(all.get(call).cancel(true));
            }
            port.open(true);
            for (int call = 1; call < CALLS_MAX; call += 2) {
                assertEquals(Mode.STORE, all.get(call).get(20, TimeUnit.SECONDS).mode());
            }
            assertTrue(Threads.named("sluicegate-call").size() <= AsyncCalls.THREADS, Threads.named("sluicegate").toString());
        }
        gate.close();
    }

    @Test
    void stages_behind_futures_may_ask_and_wait() throws Exception {
        List<CompletableFuture<Decision>> all = begin(20).stream().map(first -> first.thenApply(decision -> limiter.checkAsync("k").join())).toList();
        List<CompletableFuture<Object>> firsts = List.copyOf(port.held);
        port.held.clear();
        firsts.forEach(each -> each.complete(HeldPort.reply()));
        TestRedis.await("more threads than usual, which wait", () -> port.held.size() == 20);
        port.open(true);
        for (CompletableFuture<Decision> each : all) {
            assertTrue(each.get(20, TimeUnit.SECONDS).allowed());
        }
        gate.close();
    }

    @Test
    void an_option_that_is_not_valid_closes_the_port() {
        List<Consumer<DirectGate.Builder>> options = List.of(builder -> builder.app("Bad Name"), builder -> builder.app(null),
            builder -> builder.nodes(0), builder -> builder.deadline(Duration.ZERO), builder -> builder.deadline(null), builder -> builder.clock(null));
        for (Consumer<DirectGate.Builder> option : options) {
            HeldPort own = new HeldPort();
            assertThrows(RuntimeException.class, () -> option.accept(Sluicegate.direct(own)));
            assertEquals(1, own.closed);
        }
        gate.close();
        gate.close();
        assertEquals(1, port.closed);
    }

    @Test
    void a_future_fails_with_the_bare_exception() {
        for (Limiter each : List.of(limiter, limiter.observedBy(new Observer() {
            @Override
            public void decided(String verb, Decision decision, long nanos) {
                // It is not decided.
            }

            @Override
            public void failed(String policy, String verb, SluicegateException failure, long nanos) {
                // The future has it.
            }
        }))) {
            CompletableFuture<Decision> reset = each.resetAsync("k");
            CompletableFuture<Throwable> thrown = new CompletableFuture<>();
            reset.whenComplete((decision, problem) -> thrown.complete(problem));
            port.held.remove().completeExceptionally(new RedisPort.Failure("gone", true, false));
            SluicegateException bare = assertInstanceOf(SluicegateException.class, thrown.orTimeout(20, TimeUnit.SECONDS).join());
            assertEquals(ErrorCode.PERHAPS_CHARGED, bare.code());
            assertSame(bare, assertThrows(CompletionException.class, reset::join).getCause());
            assertSame(bare, assertThrows(ExecutionException.class, reset::get).getCause());
        }
        gate.close();
    }

    @Test
    void an_observer_sees_each_call_once() throws Exception {
        List<String> seen = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(3);
        Limiter observed = limiter.observedBy(new Observer() {
            @Override
            public synchronized void decided(String verb, Decision decision, long nanos) {
                seen.add(verb + " " + decision.mode());
                all.countDown();
            }

            @Override
            public synchronized void failed(String policy, String verb, SluicegateException failure, long nanos) {
                seen.add(verb + " " + failure.code());
                all.countDown();
            }
        });
        observed.peekAsync("k", 1).cancel(true);
        CompletableFuture<Decision> check = observed.checkAsync("k");
        CompletableFuture<Decision> reset = observed.resetAsync("k");
        port.held.remove();
        port.held.remove().complete(HeldPort.reply());
        assertEquals(Mode.STORE, check.get(20, TimeUnit.SECONDS).mode());
        gate.close();
        assertEquals(ErrorCode.INTERRUPTED, failure(reset));
        assertTrue(all.await(20, TimeUnit.SECONDS));
        assertEquals(List.of("peek INTERRUPTED", "check STORE", "reset INTERRUPTED"), seen);
    }
}
