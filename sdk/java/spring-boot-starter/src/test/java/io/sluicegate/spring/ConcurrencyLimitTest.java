package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.test.TestGate;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.springframework.aop.framework.AopProxyUtils;
import org.springframework.beans.factory.BeanCreationException;
import org.springframework.context.support.GenericApplicationContext;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Methods that hold a permit while they run. */
class ConcurrencyLimitTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final int LIMIT = 5;

    static class Shop {
        private final AtomicInteger calls = new AtomicInteger();
        private final AtomicInteger inside = new AtomicInteger();
        private final AtomicInteger most = new AtomicInteger();
        private final CountDownLatch open = new CountDownLatch(1);
        private CompletableFuture<String> work = new CompletableFuture<>();
        private Runnable inFallback = () -> { };

        @ConcurrencyLimit(policy = "pool", key = "#key")
        public String hold(String key) throws InterruptedException {
            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
            open.await(20, TimeUnit.SECONDS);
            inside.decrementAndGet();
            return "held";
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", cost = "5")
        public String fail(String key) {
            throw new IllegalStateException("as the test asks");
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", cost = "5")
        public CompletableFuture<String> later(String key) {
            calls.incrementAndGet();
            return work;
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", cost = "5")
        public Mono<String> mono(String key) {
            calls.incrementAndGet();
            return Mono.fromFuture(() -> work);
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", cost = "5")
        public Flux<Integer> flux(String key) {
            calls.incrementAndGet();
            return Flux.concat(Flux.just(1, 2), Mono.fromFuture(() -> work).map(String::length));
        }

        @ConcurrencyLimit(policy = "pool", key = "#key")
        @ConcurrencyLimit(policy = "one", key = "#key", fallback = "busy", status = 420, body = "slow down")
        public String two(String key) {
            return "two";
        }

        private String busy(String key, RateLimitExceededException refusal) {
            inFallback.run();
            return "busy: " + refusal.answer().status() + " " + refusal.answer().body();
        }

        @ConcurrencyLimit(policy = "pool", key = "#key")
        @ConcurrencyLimit(policy = "one", key = "#key", fallback = "busyLater")
        public CompletableFuture<String> twoLater(String key) {
            return CompletableFuture.completedFuture("two");
        }

        private CompletableFuture<String> busyLater(String key) {
            inFallback.run();
            return CompletableFuture.completedFuture("busy");
        }

        @ConcurrencyLimit(policy = "pool", key = "#key")
        @ConcurrencyLimit(policy = "one", key = "#key", fallback = "busyMono")
        public Mono<String> twoMono(String key) {
            return Mono.just("two");
        }

        private Mono<String> busyMono(String key) {
            inFallback.run();
            return Mono.just("busy");
        }

        @RateLimit(policy = "orders", key = "#key")
        @ConcurrencyLimit(policy = "one", key = "#key")
        public String both(String key) {
            return "both";
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", unless = "#key == 'root'", cost = "6")
        public String never(String key) {
            return "never";
        }

        @ConcurrencyLimit(policy = "jobs-shadow", key = "#key")
        public String shadow(String key, Runnable inside) {
            inside.run();
            return "passed";
        }

        @ConcurrencyLimit(policy = "pool", key = "#key", maxWait = "2500ms")
        public String patient(String key) {
            return "patient";
        }
    }

    // A field of the proxy is not that of the bean.
    private static Shop real(Shop shop) {
        return (Shop) AopProxyUtils.getSingletonTarget(shop);
    }

    private static void limited(TestGate gate, Consumer<Shop> test) {
        gate.compiled(Records.file());
        gate.policy("pool", Limit.concurrency(LIMIT, Duration.ofSeconds(30)));
        gate.policy("one", Limit.concurrency(1, Duration.ofSeconds(30)));
        gate.policy("orders", Limit.fixedWindow(2, Duration.ofMinutes(1)));
        limited((Gate) gate, test);
    }

    private static void limited(Gate gate, Consumer<Shop> test) {
        try (gate; GenericApplicationContext context = new GenericApplicationContext()) {
            context.getBeanFactory().registerSingleton("gate", gate);
            context.registerBean(RateLimitPostProcessor.class, RateLimitPostProcessor::new);
            context.registerBean(Shop.class, Shop::new);
            context.refresh();
            test.accept(context.getBean(Shop.class));
        }
    }

    private static long free(TestGate gate) {
        return gate.policy("pool").peek("k").remaining();
    }

    @Test
    void five_of_fifty_calls_at_once_are_inside() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            ExecutorService threads = Executors.newFixedThreadPool(50);
            AtomicInteger refused = new AtomicInteger();
            List<CompletableFuture<Void>> all = new ArrayList<>();
            for (int call = 0; call < 50; call++) {
                all.add(CompletableFuture.runAsync(() -> {
                    try {
                        shop.hold("k");
                    } catch (RateLimitExceededException e) {
                        refused.incrementAndGet();
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    }
                }, threads));
            }
            TestRedis.await("refusals", () -> refused.get() == 50 - LIMIT);
            assertEquals(0, free(gate));
            real(shop).open.countDown();
            CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).orTimeout(20, TimeUnit.SECONDS).join();
            threads.shutdownNow();
            assertEquals(LIMIT, real(shop).most.get());
            assertEquals(LIMIT, free(gate));
        });
    }

    @Test
    void a_call_that_throws_frees_its_permit() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            for (int call = 0; call < 10_000; call++) {
                assertThrows(IllegalStateException.class, () -> shop.fail("k"));
            }
            assertEquals(LIMIT, free(gate));
        });
    }

    @Test
    void a_stage_holds_its_permit_until_it_completes_or_fails() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            CompletableFuture<String> held = shop.later("k");
            TestRedis.await("the call", () -> real(shop).calls.get() == 1);
            assertEquals(0, free(gate));
            assertInstanceOf(RateLimitExceededException.class, assertThrows(CompletionException.class, shop.later("k")::join).getCause());
            real(shop).work.complete("done");
            assertEquals("done", held.join());
            assertEquals(LIMIT, free(gate));
            real(shop).work = CompletableFuture.failedFuture(new IllegalStateException("as the test asks"));
            assertInstanceOf(IllegalStateException.class, assertThrows(CompletionException.class, shop.later("k")::join).getCause());
            assertEquals(LIMIT, free(gate));
            assertEquals(2, real(shop).calls.get());
        });
    }

    @Test
    void a_stage_whose_caller_cancels_it_frees_its_permit_with_the_work() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            CompletableFuture<String> held = shop.later("k");
            TestRedis.await("the call", () -> real(shop).calls.get() == 1);
            assertEquals(0, free(gate));
            assertTrue(held.cancel(true));
            assertTrue(real(shop).work.isCancelled());
            TestRedis.await("the permit", () -> free(gate) == LIMIT);
        });
    }

    /** A gate that answers an acquire when the test says so. */
    private static final class Slow implements Gate, Transport {
        private final List<Call> calls = new CopyOnWriteArrayList<>();
        private final TestGate memory = new TestGate();
        private final CompletableFuture<Decision> acquired = new CompletableFuture<>();

        @Override
        public Limiter policy(String name) {
            return new Limiter(name, this);
        }

        @Override
        public Decision decide(Call call) {
            return decideAsync(call).join();
        }

        @Override
        public CompletableFuture<Decision> decideAsync(Call call) {
            calls.add(call);
            Limiter one = memory.policy("one", Limit.concurrency(1, Duration.ofSeconds(30)));
            return call.verb() == Verb.ACQUIRE ? acquired : one.acquireAsync("k", call.id(), 1);
        }

        @Override
        public void close() {
            memory.close();
        }
    }

    private static void isReleased(Slow gate) {
        TestRedis.await("the release", () -> gate.calls.size() >= 2);
        assertTrue(gate.calls.get(1).verb() == Verb.RELEASE && gate.calls.get(1).id().equals(gate.calls.get(0).id()), gate.calls.toString());
    }

    @Test
    void who_gives_up_before_the_answer_is_not_called_and_releases_the_name() {
        Slow first = new Slow();
        limited(first, shop -> {
            assertTrue(shop.later("k").cancel(true));
            isReleased(first);
            assertEquals(0, real(shop).calls.get());
        });
        Slow second = new Slow();
        limited(second, shop -> {
            Disposable subscription = shop.mono("k").subscribe();
            TestRedis.await("the acquire", () -> !second.calls.isEmpty());
            subscription.dispose();
            isReleased(second);
            assertEquals(0, real(shop).calls.get());
        });
    }

    @Test
    void each_subscription_holds_its_permit_until_it_ends() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            Flux<Integer> flux = shop.flux("k");
            assertEquals(LIMIT, free(gate));
            List<Integer> seen = new CopyOnWriteArrayList<>();
            Disposable subscription = flux.subscribe(seen::add);
            TestRedis.await("two elements", () -> seen.size() == 2);
            assertEquals(0, free(gate));
            assertThrows(RateLimitExceededException.class, () -> flux.blockLast(PATIENCE));
            subscription.dispose();
            TestRedis.await("the permit", () -> free(gate) == LIMIT);
            real(shop).work = CompletableFuture.completedFuture("done");
            assertEquals(List.of(1, 2, 4), flux.collectList().block(PATIENCE));
            assertEquals(LIMIT, free(gate));
            assertEquals("done", shop.mono("k").block(PATIENCE));
            assertEquals(LIMIT, free(gate));
            real(shop).work = CompletableFuture.failedFuture(new IllegalStateException("as the test asks"));
            assertThrows(IllegalStateException.class, () -> shop.mono("k").block(PATIENCE));
            assertThrows(IllegalStateException.class, () -> flux.blockLast(PATIENCE));
            assertEquals(LIMIT, free(gate));
        });
    }

    @Test
    void a_refusal_gives_back_what_earlier_annotations_hold_before_a_fallback() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            assertEquals("two", shop.two("k"));
            gate.policy("one").acquire("k", "other", 1);
            List<Long> inFallback = new CopyOnWriteArrayList<>();
            real(shop).inFallback = () -> inFallback.add(free(gate));
            assertEquals("busy: 420 slow down", shop.two("k"));
            assertEquals("busy", shop.twoLater("k").join());
            assertEquals("busy", shop.twoMono("k").block(PATIENCE));
            assertEquals(List.of((long) LIMIT, (long) LIMIT, (long) LIMIT), inFallback);
            assertEquals(LIMIT, free(gate));
            gate.policy("one").release("k", "other");
            assertEquals("two", shop.twoLater("k").join());
            assertEquals("two", shop.twoMono("k").block(PATIENCE));
            assertEquals(LIMIT, free(gate));
            assertEquals(1, gate.policy("one").peek("k").remaining());
        });
    }

    @Test
    void a_call_that_gets_no_permit_is_charged_nothing() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            gate.policy("one").acquire("k", "other", 1);
            assertThrows(RateLimitExceededException.class, () -> shop.both("k"));
            assertEquals(2, gate.policy("orders").peek("k").remaining());
            gate.policy("one").release("k", "other");
            shop.both("k");
            shop.both("k");
            assertEquals("orders", assertThrows(RateLimitExceededException.class, () -> shop.both("k")).decision().policy());
            assertEquals(1, gate.policy("one").peek("k").remaining());
        });
    }

    @Test
    void conditions_exempt_and_shadow_passes() {
        TestGate gate = new TestGate();
        limited(gate, shop -> {
            assertThrows(RateLimitExceededException.class, () -> shop.never("k"));
            assertEquals("never", shop.never("root"));
            assertEquals("passed", shop.shadow("k", () -> assertEquals("passed", shop.shadow("k", () -> { }))));
            assertEquals(1, gate.policy("jobs-shadow").peek("k").remaining());
        });
    }

    @Test
    void a_wait_is_that_of_the_annotation() {
        Slow gate = new Slow();
        gate.acquired.complete(gate.memory.policy("one", Limit.concurrency(1, Duration.ofSeconds(30))).acquire("k", "a", 1));
        limited(gate, shop -> {
            assertEquals("patient", shop.patient("k"));
            assertEquals(2_500_000, gate.calls.get(0).maxWaitUs());
            shop.later("k");
            assertFalse(gate.calls.get(gate.calls.size() - 1).waitsForPermit());
        });
    }

    static class Private {
        @ConcurrencyLimit(policy = "pool")
        private void create() {
            // A proxy cannot stand before it.
        }
    }

    static class UnknownKey {
        @ConcurrencyLimit(policy = "pool", key = "#usr")
        public void create(String user) {
            // The key names no parameter.
        }
    }

    static class WrongWait {
        @ConcurrencyLimit(policy = "pool", maxWait = "soon")
        public void create() {
            // It is not a time.
        }
    }

    static class NegativeWait {
        @ConcurrencyLimit(policy = "pool", maxWait = "-1s")
        public void create() {
            // Nobody waits so long.
        }
    }

    static class NoFallback {
        @ConcurrencyLimit(policy = "pool", fallback = "busy")
        public void create() {
            // There is no such method.
        }
    }

    @Test
    void mistakes_are_refused_at_the_start() {
        String[][] messages = {
            {Private.class.getName(), "@ConcurrencyLimit does not limit a private, final or static method"},
            {UnknownKey.class.getName(), "@ConcurrencyLimit: `#usr` is no parameter of"},
            {WrongWait.class.getName(), "maxWait: `soon` is not a time; expected one such as `2s`"},
            {NegativeWait.class.getName(), "maxWait: `-1s` is not a time; expected one such as `2s`"},
            {NoFallback.class.getName(), "@ConcurrencyLimit: there is no fallback `busy` with the parameters of"}};
        for (String[] each : messages) {
            try (TestGate gate = new TestGate(); GenericApplicationContext context = new GenericApplicationContext()) {
                context.getBeanFactory().registerSingleton("gate", gate);
                context.registerBean(RateLimitPostProcessor.class, RateLimitPostProcessor::new);
                context.registerBean(Class.forName(each[0]));
                assertTrue(assertThrows(BeanCreationException.class, context::refresh).getMessage().contains(each[1]), each[1]);
            } catch (ClassNotFoundException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
