package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.internal.Decided;
import io.sluicegate.testing.LogLines;
import io.sluicegate.testing.TestRedis;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Permits, over a transport that answers as the test says. */
class PermitTest {
    private static final Duration WAIT = Duration.ofSeconds(20);

    private final List<Call> calls = new CopyOnWriteArrayList<>();

    @AfterEach
    void clearInterrupt() {
        Thread.interrupted();
    }

    private static Decision decision(boolean allowed, Overflow overflow) {
        return decision(allowed, overflow, Mode.STORE);
    }

    private static Decision decision(boolean allowed, Overflow overflow, Mode mode) {
        return new Decided(allowed, allowed ? 1 : 0, 0, 5, 0, allowed ? 0 : Decision.NEVER, 300_000, "p", "r", List.of(), mode, overflow, 0);
    }

    private static CompletableFuture<Decision> decided(boolean allowed) {
        return decided(allowed, Mode.STORE);
    }

    private static CompletableFuture<Decision> decided(boolean allowed, Mode mode) {
        return CompletableFuture.completedFuture(decision(allowed, null, mode));
    }

    private static CompletableFuture<Decision> undecided(ErrorCode code) {
        return CompletableFuture.failedFuture(code.with(Map.of("cause", "a fault")));
    }

    private Limiter limiter(Function<Call, CompletableFuture<Decision>> answers) {
        return new Limiter("p", new Transport() {
            @Override
            public Decision decide(Call call) throws InterruptedException {
                try {
                    return decideAsync(call).get();
                } catch (ExecutionException e) {
                    throw (SluicegateException) e.getCause();
                }
            }

            @Override
            public CompletableFuture<Decision> decideAsync(Call call) {
                calls.add(call);
                return answers.apply(call);
            }
        });
    }

    private List<Call> releases() {
        return calls.stream().filter(call -> call.verb() == Verb.RELEASE).toList();
    }

    private void isReleased(int times) {
        TestRedis.await("releases of the acquire", () -> releases().size() == times);
        assertTrue(releases().stream().allMatch(release -> release.id().equals(calls.get(0).id()) && release.key().equals("k")), calls.toString());
    }

    @Test
    void a_wait_is_part_of_the_call_and_others_have_none() {
        Limiter limiter = limiter(call -> decided(true));
        limiter.acquire("k", Duration.ofMillis(1500));
        limiter.acquireAsync("k", Duration.ZERO);
        limiter.acquire("k", "id", 2, Duration.ofSeconds(1));
        limiter.acquireAsync("k", "id", 2, Duration.ofSeconds(1));
        limiter.acquire("k");
        limiter.acquireAsync("k", "id", 1);
        assertEquals(List.of(1_500_000L, 0L, 1_000_000L, 1_000_000L, -1L, -1L), calls.stream().map(Call::maxWaitUs).toList());
        assertEquals(List.of(true, true, true, true, false, false), calls.stream().map(Call::waitsForPermit).toList());
        assertEquals(ErrorCode.MAX_WAIT_RANGE, assertThrows(SluicegateException.class, () -> limiter.acquire("k", Duration.ofMillis(-1))).code());
    }

    @Test
    void a_permit_without_an_answer_is_released() {
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? undecided(ErrorCode.PERHAPS_CHARGED) : decided(true));
        assertThrows(SluicegateException.class, () -> limiter.acquire("k"));
        isReleased(1);
        calls.clear();
        assertTrue(limiter.acquireAsync("k", WAIT).isCompletedExceptionally());
        isReleased(1);
    }

    @Test
    void a_permit_that_redis_may_grant_after_the_refusal_is_released() {
        for (Mode mode : List.of(Mode.SHED, Mode.DENY, Mode.LOCAL)) {
            Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? decided(false, mode) : decided(true));
            assertFalse(limiter.acquire("k").decision().allowed());
            isReleased(1);
            calls.clear();
            assertFalse(limiter.acquireAsync("k", WAIT).join().decision().allowed());
            isReleased(1);
            calls.clear();
        }
    }

    @Test
    void a_permit_of_a_share_is_released_in_redis_as_well() {
        Limiter limiter = limiter(call -> decided(true, Mode.LOCAL));
        limiter.acquire("k").close();
        isReleased(2);
        calls.clear();
        limiter.acquireAsync("k", WAIT).join().closeAsync().join();
        isReleased(2);
    }

    @Test
    void a_name_that_the_caller_chose_is_the_callers_to_release() {
        Limiter limiter = limiter(call -> undecided(ErrorCode.PERHAPS_CHARGED));
        limiter.acquireAsync("k", "mine", 1, WAIT);
        assertThrows(SluicegateException.class, () -> limiter.acquire("k", "mine", 1, null));
        assertTrue(releases().isEmpty());
    }

    @Test
    void nothing_is_released_that_is_certainly_not_held() {
        Limiter limiter = limiter(call -> undecided(ErrorCode.NOT_CHARGED));
        assertThrows(SluicegateException.class, () -> limiter.acquire("k"));
        assertTrue(limiter.acquireAsync("k", WAIT).isCompletedExceptionally());
        assertThrows(SluicegateException.class, () -> limiter.acquire("", WAIT));
        assertEquals(List.of(Verb.ACQUIRE, Verb.ACQUIRE), calls.stream().map(Call::verb).toList());
    }

    @Test
    void an_acquire_may_arrive_after_its_release_which_is_tried_twice() {
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? undecided(ErrorCode.PERHAPS_CHARGED) : decided(false));
        assertThrows(SluicegateException.class, () -> limiter.acquire("k"));
        isReleased(2);
    }

    @Test
    void an_interrupted_thread_leaves_no_permit_behind() {
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? new CompletableFuture<>() : decided(true));
        Thread.currentThread().interrupt();
        assertEquals(ErrorCode.INTERRUPTED, assertThrows(SluicegateException.class, () -> limiter.acquire("k", WAIT)).code());
        assertTrue(Thread.interrupted());
        isReleased(1);
    }

    @Test
    void a_cancelled_future_leaves_no_permit_behind() {
        CompletableFuture<Decision> slow = new CompletableFuture<>();
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? slow : decided(true));
        assertTrue(limiter.acquireAsync("k", WAIT).cancel(true));
        isReleased(1);
        assertTrue(slow.isCancelled());
    }

    @Test
    void a_decision_after_the_cancellation_leaves_no_permit_behind() {
        // It cannot be cancelled any more.
        CompletableFuture<Decision> late = new CompletableFuture<>() {
            @Override
            public boolean cancel(boolean interrupts) {
                return false;
            }
        };
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? late : decided(true));
        limiter.acquireAsync("k", WAIT).cancel(true);
        late.complete(decision(true, null));
        isReleased(1);
    }

    @Test
    void what_is_closed_is_given_back_once_and_again_later_if_nobody_answers() {
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE ? decided(true) : undecided(ErrorCode.NOT_CHARGED));
        Acquisition attempt = limiter.acquire("k");
        attempt.close();
        attempt.close();
        attempt.closeAsync().join();
        isReleased(2);
        calls.clear();
        limiter.acquireAsync("k").join().closeAsync().join();
        isReleased(2);
    }

    @Test
    void an_interrupted_thread_gives_its_permit_back_and_stays_interrupted() {
        Limiter limiter = limiter(call -> call.verb() == Verb.ACQUIRE || calls.size() > 2 ? decided(true) : new CompletableFuture<>());
        Acquisition attempt = limiter.acquire("k");
        Thread.currentThread().interrupt();
        attempt.close();
        assertTrue(Thread.interrupted());
        isReleased(2);
    }

    @Test
    void what_holds_nothing_is_not_given_back() {
        for (Decision nothing : List.of(decision(false, null), decision(true, new Overflow.Shadow()))) {
            Limiter limiter = limiter(call -> CompletableFuture.completedFuture(nothing));
            limiter.acquire("k").close();
            limiter.acquireAsync("k").join().closeAsync().join();
        }
        assertTrue(releases().isEmpty());
    }

    @Test
    void a_permit_is_renewed_until_it_is_closed_also_after_a_fault() throws InterruptedException {
        CountDownLatch renewed = new CountDownLatch(4);
        Limiter limiter = limiter(call -> {
            if (call.verb() == Verb.RENEW) {
                renewed.countDown();
                return renewed.getCount() == 2 ? undecided(ErrorCode.PERHAPS_CHARGED) : decided(true);
            }
            return decided(true);
        });
        Acquisition closed = limiter.acquire("closed");
        closed.orElseThrow().renewUntilClosed();
        closed.close();
        Acquisition attempt = limiter.acquire("k");
        assertEquals(attempt.orElseThrow(), attempt.orElseThrow().renewUntilClosed().renewUntilClosed());
        assertTrue(renewed.await(20, TimeUnit.SECONDS));
        attempt.close();
        List<Call> renewals = calls.stream().filter(call -> call.verb() == Verb.RENEW).toList();
        assertTrue(renewals.stream().allMatch(call -> call.id().equals(attempt.orElseThrow().id())), renewals.toString());
    }

    @Test
    void a_permit_that_lapsed_is_renewed_no_more_and_logged() {
        Limiter limiter = limiter(call -> decided(call.verb() != Verb.RENEW));
        try (LogLines log = new LogLines(); Acquisition attempt = limiter.acquire("k")) {
            attempt.orElseThrow().renewUntilClosed();
            TestRedis.await("a line of the log", () -> !log.with("a permit of policy `p` lapsed while it was in use: it was not renewed in time").isEmpty());
            assertFalse(calls.stream().filter(call -> call.verb() == Verb.RENEW).count() > 1);
        }
    }
}
