package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import io.sluicegate.Limit;
import io.sluicegate.Mode;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.http.HttpGate;
import io.sluicegate.micrometer.DecisionMeters;
import io.sluicegate.test.TestGate;
import io.sluicegate.testing.TestRedis;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.Test;
import org.reactivestreams.Publisher;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.MediaType;

class StarterTest {
    record User(String id) {}

    static class Shop {
        int calls;

        @RateLimit(policy = "orders", key = "#user.id")
        public String create(User user) {
            calls++;
            return "created by " + user.id();
        }

        @RateLimit(policy = "orders", key = "#user.id", cost = "#items", fallback = "busy")
        public String buy(User user, int items) {
            return "bought";
        }

        private String busy(User user, int items, RateLimitExceededException refusal) {
            return "busy: " + refusal.decision().rule();
        }

        @RateLimit(policy = "orders", key = "#user.id")
        @RateLimit(policy = "all")
        public CompletionStage<String> later(User user) {
            calls++;
            return CompletableFuture.supplyAsync(() -> "later");
        }

        @RateLimit(policy = "all")
        public Publisher<String> stream() {
            return null;
        }

        public String free() {
            return "free";
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Plain {
        @Bean
        Shop shop() {
            return new Shop();
        }
    }

    static class InMemory extends Plain {
        @Bean
        TestGate gate() {
            TestGate gate = new TestGate();
            gate.document("{\"name\":\"orders\",\"rules\":[{\"fixed_window\":{\"limit\":3,\"window\":\"1m\"}}]}");
            gate.document("{\"name\":\"all\",\"rules\":[{\"fixed_window\":{\"limit\":2,\"window\":\"1m\"}}]}");
            return gate;
        }

        @Bean
        MeterRegistry registry() {
            return new SimpleMeterRegistry();
        }
    }

    private static ConfigurableApplicationContext start(Class<?> application, String... properties) {
        return new SpringApplicationBuilder(application).web(WebApplicationType.NONE).logStartupInfo(false)
            .properties("spring.main.banner-mode=off").properties(properties).run();
    }

    @Test
    void a_method_is_limited_by_its_key_and_cost() {
        try (ConfigurableApplicationContext context = start(InMemory.class)) {
            Shop shop = context.getBean(Shop.class);
            User alice = new User("alice");
            assertEquals("created by alice", shop.create(alice));
            assertEquals("bought", shop.buy(alice, 2));
            assertEquals("busy: fixed_window", shop.buy(alice, 1));
            RateLimitExceededException refusal = assertThrows(RateLimitExceededException.class, () -> shop.create(alice));
            assertEquals("orders", refusal.decision().policy());
            assertEquals("created by bob", shop.create(new User("bob")));
            assertEquals("free", shop.free());
            context.getBean(TestGate.class).advance(Duration.ofMinutes(1));
            assertEquals("created by alice", shop.create(alice));
            assertEquals(4, context.getBean(MeterRegistry.class).find(DecisionMeters.NAME).tag("policy", "orders").tag("result", "allowed")
                .timers().stream().mapToLong(timer -> timer.count()).sum());
        }
    }

    @Test
    void a_method_that_answers_later_does_not_block() {
        try (ConfigurableApplicationContext context = start(InMemory.class)) {
            Shop shop = context.getBean(Shop.class);
            assertEquals("later", shop.later(new User("a")).toCompletableFuture().join());
            assertEquals("later", shop.later(new User("b")).toCompletableFuture().join());
            CompletableFuture<String> refused = shop.later(new User("c")).toCompletableFuture();
            Throwable cause = assertThrows(CompletionException.class, refused::join).getCause();
            assertEquals("all", assertInstanceOf(RateLimitExceededException.class, cause).decision().policy());
            assertThrows(IllegalStateException.class, shop::stream);
        }
    }

    @Test
    void a_refusal_is_answered_with_a_problem() {
        try (TestGate gate = new TestGate()) {
            var mail = gate.limit("mail", Limit.fixedWindow(1, Duration.ofMinutes(1)));
            mail.check("a");
            RateLimitExceededException refusal = assertThrows(RateLimitExceededException.class, () -> mail.checkOrThrow("a"));
            var answer = new RateLimitAdvice().refused(refusal);
            assertEquals(429, answer.getStatusCode().value());
            assertEquals("60", answer.getHeaders().getFirst("Retry-After"));
            assertEquals(MediaType.APPLICATION_PROBLEM_JSON, answer.getHeaders().getContentType());
        }
    }

    @Test
    void the_gate_is_made_by_properties() {
        try (TestRedis redis = TestRedis.start();
             ConfigurableApplicationContext context = start(Plain.class, "sluicegate.redis.url=" + redis.uri(), "sluicegate.app=shop",
                 "sluicegate.nodes=3", "sluicegate.deadline=5s")) {
            DirectGate gate = assertInstanceOf(DirectGate.class, context.getBean(Gate.class));
            assertEquals(Mode.STORE, gate.limit("mail", Limit.fixedWindow(5, Duration.ofDays(366))).check("a").mode());
        }
        try (ConfigurableApplicationContext context = start(Plain.class, "sluicegate.mode=remote", "sluicegate.server.url=http://127.0.0.1:1",
            "sluicegate.server.token=secret")) {
            assertInstanceOf(HttpGate.class, context.getBean(Gate.class));
            assertTrue(context.getBeanProvider(io.sluicegate.Observer.class).getIfAvailable() == null);
            assertFalse(context.containsBean("sluicegateAdvice"));
        }
    }
}
