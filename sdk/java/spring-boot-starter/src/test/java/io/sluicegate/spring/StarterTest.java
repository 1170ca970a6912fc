package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
import io.sluicegate.Gate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Observer;
import io.sluicegate.Overflow;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.SluicegateException;
import io.sluicegate.http.HttpGate;
import io.sluicegate.internal.Decided;
import io.sluicegate.micrometer.DecisionMeters;
import io.sluicegate.test.TestGate;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestCluster;
import io.sluicegate.testing.TestRedis;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.core.env.StandardEnvironment;
import org.springframework.http.MediaType;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

class StarterTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

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

        @RateLimit(policy = "orders", key = "#user.id")
        public Mono<String> mono(User user) {
            calls++;
            return Mono.just("mono");
        }

        @RateLimit(policy = "orders", key = "#user.id", cost = "2", fallback = "none")
        public Flux<Integer> flux(User user) {
            calls++;
            return Flux.range(1, 3);
        }

        private Flux<Integer> none(User user) {
            return Flux.just(0);
        }

        // A field of the proxy is not that of the bean.
        public int calls() {
            return calls;
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
            gate.policy("orders", Limit.fixedWindow(3, Duration.ofMinutes(1)));
            gate.policy("all", Limit.fixedWindow(2, Duration.ofMinutes(1)));
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
            assertEquals("busy: limit", shop.buy(alice, 1));
            RateLimitExceededException refusal = assertThrows(RateLimitExceededException.class, () -> shop.create(alice));
            assertEquals("orders", refusal.decision().policy());
            assertEquals("created by bob", shop.create(new User("bob")));
            assertEquals("free", shop.free());
            context.getBean(TestGate.class).advance(Duration.ofSeconds(66));
            assertEquals("created by alice", shop.create(alice));
            assertEquals(4, context.getBean(MeterRegistry.class).find(DecisionMeters.NAME).tag("policy", "orders").tag("result", "allowed")
                .timers().stream().mapToLong(timer -> timer.count()).sum());
        }
    }

    @Test
    void a_key_that_is_missing_is_not_the_shared_budget() {
        try (ConfigurableApplicationContext context = start(InMemory.class)) {
            Shop shop = context.getBean(Shop.class);
            for (String none : new String[] {null, ""}) {
                SluicegateException missing = assertThrows(SluicegateException.class, () -> shop.create(new User(none)));
                assertEquals(ErrorCode.KEY_EMPTY, missing.code());
            }
        }
    }

    /** Notes each decision. */
    record Notes(List<String> seen) implements Observer {
        @Override
        public void decided(String verb, Decision decision, long nanos) {
            seen.add(verb);
        }

        @Override
        public void failed(String policy, String verb, SluicegateException failure, long nanos) {
            seen.add(failure.code().name());
        }
    }

    static class Observed extends InMemory {
        @Bean
        Notes first() {
            return new Notes(new CopyOnWriteArrayList<>());
        }

        @Bean
        Notes second() {
            return new Notes(new CopyOnWriteArrayList<>());
        }
    }

    @Test
    void all_observers_see_what_is_decided() {
        try (ConfigurableApplicationContext context = start(Observed.class)) {
            context.getBean(Shop.class).create(new User("alice"));
            assertEquals(List.of("check"), context.getBean("first", Notes.class).seen());
            assertEquals(List.of("check"), context.getBean("second", Notes.class).seen());
            assertEquals(1, context.getBean(MeterRegistry.class).find(DecisionMeters.NAME).timers().stream().mapToLong(timer -> timer.count()).sum());
        }
    }

    @Test
    void settings_keep_their_secrets() {
        var redis = new SluicegateProperties.Redis("rediss://app:pass@word@r:6379/0", List.of("redis://:secret@a:6379", "redis://b"));
        assertEquals("Redis[url=rediss://***@r:6379/0, cluster=[redis://***@a:6379, redis://b]]", redis.toString());
        var server = new SluicegateProperties.Server(URI.create("http://gate:8080"), "secret", Duration.ofMillis(200));
        assertEquals("Server[url=http://gate:8080, token=***, timeout=PT0.2S]", server.toString());
        var settings = new SluicegateProperties(SluicegateProperties.Mode.DIRECT, null, null, Duration.ofMillis(50), redis, server, true,
            List.of(), List.of(), new SluicegateProperties.Health("DEGRADED", "DOWN"));
        assertFalse(settings.toString().contains("secret") || settings.toString().contains("word"), settings.toString());
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
            assertEquals(2, shop.calls());
        }
    }

    @Test
    void each_subscription_of_a_publisher_is_limited() {
        try (ConfigurableApplicationContext context = start(InMemory.class)) {
            Shop shop = context.getBean(Shop.class);
            User alice = new User("alice");
            Flux<Integer> flux = shop.flux(alice);
            assertEquals(0, shop.calls());
            assertEquals(List.of(1, 2, 3), flux.collectList().block(PATIENCE));
            assertEquals(List.of(0), flux.collectList().block(PATIENCE));
            Mono<String> mono = shop.mono(alice);
            assertEquals("mono", mono.block(PATIENCE));
            assertEquals("orders", assertThrows(RateLimitExceededException.class, () -> mono.block(PATIENCE)).decision().policy());
            context.getBean(TestGate.class).advance(Duration.ofSeconds(66));
            assertEquals("mono", mono.block(PATIENCE));
            assertEquals(3, shop.calls());
        }
    }

    @Test
    void a_redis_that_is_gone_is_said_and_takes_nobody_out_of_service() throws Exception {
        try (TestRedis redis = TestRedis.start();
             ConfigurableApplicationContext context = start(Bare.class, "sluicegate.redis.url=" + redis.uri(), "sluicegate.deadline=5s");
             ConfigurableApplicationContext strict = start(Bare.class, "sluicegate.redis.url=redis://127.0.0.1:1",
                 "sluicegate.health.degraded-status=OUT_OF_SERVICE")) {
            Limiter mail = ((DirectGate) context.getBean(Gate.class)).limit("mail", Limit.fixedWindow(500, Duration.ofDays(366)));
            TestRedis.await("a connection", () -> mail.check("a").mode() == Mode.STORE);
            String address = "address=127.0.0.1:" + redis.port();
            assertEquals("UP {redis=answers, " + address + "}", health(context));
            redis.stop();
            TestRedis.await("an open breaker", () -> mail.check("a").mode() == Mode.LOCAL && health(context).contains("not"));
            String away = health(context);
            assertTrue(away.startsWith("DEGRADED {redis=does not decide, " + address + ", cause=") && away.contains("by a share of 1/1"), away);
            Limiter none = ((DirectGate) strict.getBean(Gate.class)).limit("mail", Limit.fixedWindow(500, Duration.ofDays(366)));
            TestRedis.await("an open breaker", () -> none.check("a").mode() == Mode.LOCAL && health(strict).startsWith("OUT_OF_SERVICE"));
            assertTrue(health(strict).contains("there is no connection to 127.0.0.1:1: connection refused"), health(strict));
        }
        try (ConfigurableApplicationContext context = start(InMemory.class)) {
            assertEquals("UP {}", health(context));
        }
        try (ConfigurableApplicationContext context = start(InMemory.class, "management.health.sluicegate.enabled=false")) {
            assertFalse(context.containsBean("sluicegateHealthIndicator"));
        }
    }

    @Test
    void a_redis_without_policies_and_one_that_refuses_the_password_are_down() {
        try (TestRedis redis = TestRedis.start();
             ConfigurableApplicationContext context = start(Plain.class, "sluicegate.redis.url=" + redis.uri(), "sluicegate.health.down-status=OUT_OF_SERVICE")) {
            // `orders` of the annotations is used from the start.
            TestRedis.await("a look", () -> health(context).contains("no policies are published"));
            SluicegateException none = assertThrows(SluicegateException.class, () -> context.getBean(Shop.class).create(new User("alice")));
            assertEquals(ErrorCode.NOTHING_PUBLISHED, none.code());
            assertTrue(health(context).startsWith("OUT_OF_SERVICE {redis=does not decide, address=127.0.0.1:" + redis.port() + ", cause=policy: no policies are published"),
                health(context));
            redis.command("CONFIG", "SET", "requirepass", "right-one");
            try (ConfigurableApplicationContext refused = start(Plain.class, "sluicegate.redis.url=redis://:wrong-one@127.0.0.1:" + redis.port())) {
                assertThrows(SluicegateException.class, () -> refused.getBean(Shop.class).create(new User("alice")));
                assertTrue(health(refused).startsWith("DOWN {redis=does not decide, address=127.0.0.1:" + redis.port()) && health(refused).contains("WRONGPASS")
                    && !health(refused).contains("-one"), health(refused));
            }
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Bare {
        // It has filters only.
    }

    @Test
    void policies_of_filters_are_used_from_the_start() {
        try (TestRedis redis = TestRedis.start();
             ConfigurableApplicationContext context = new SpringApplicationBuilder(Bare.class).web(WebApplicationType.SERVLET).logStartupInfo(false)
                 .properties("spring.main.banner-mode=off", "server.port=0", "sluicegate.redis.url=" + redis.uri(), "sluicegate.filters[0].policy=orders").run()) {
            TestRedis.await("a look", () -> health(context).startsWith("DOWN {redis=does not decide, address=127.0.0.1:" + redis.port()
                + ", cause=policy: no policies are published"));
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "orders", Records.of("fixed-5"));
            redis.command("PUBLISH", "sg:policies", "1");
            TestRedis.await("the policies", () -> health(context).startsWith("UP"));
        }
    }

    @Test
    void a_redis_that_came_back_empty_decides_by_the_policies_before() {
        try (TestRedis redis = TestRedis.start()) {
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-5", Records.of("fixed-5"));
            try (ConfigurableApplicationContext context = start(Plain.class, "sluicegate.redis.url=" + redis.uri(), "sluicegate.deadline=5s")) {
                assertEquals(4, context.getBean(Gate.class).policy("fixed-5").check("alice").remaining());
                redis.command("FLUSHALL");
                redis.command("PUBLISH", "sg:policies", "2");
                TestRedis.await("a look", () -> health(context).startsWith("DEGRADED"));
                assertTrue(health(context).startsWith("DEGRADED {redis=decides by policies read before, address=127.0.0.1:" + redis.port()
                    + ", cause=policy: no policies are published"), health(context));
            }
        }
    }

    @Test
    void an_application_decides_in_a_cluster() {
        try (TestCluster cluster = TestCluster.start();
             ConfigurableApplicationContext context = start(Plain.class, "sluicegate.redis.cluster=" + cluster.uri(0) + "," + cluster.uri(1),
                 "sluicegate.deadline=5s")) {
            Limiter mail = ((DirectGate) context.getBean(Gate.class)).limit("mail", Limit.fixedWindow(500, Duration.ofDays(366)));
            for (int i = 0; i < 20; i++) {
                assertEquals(Mode.STORE, mail.check("k" + i).mode());
            }
        }
    }

    // The type of the indicator is at one place in Boot 3.5 and at another in Boot 4.
    static String health(ConfigurableApplicationContext context) {
        Object indicator = context.getBean("sluicegateHealthIndicator");
        try {
            var health = indicator.getClass().getMethod("health");
            health.setAccessible(true);
            return String.valueOf(health.invoke(indicator));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void a_filter_whose_key_is_no_key_is_refused_at_the_start() {
        for (String key : new String[] {"header:", "adress"}) {
            refusedFilter("sluicegate.filters[0].key: `" + key + "` is not a key; expected `address`", filter("orders", key, null));
        }
        refusedFilter("sluicegate.filters[0].policy: is missing", filter(null, "address", null));
        refusedFilter("sluicegate.filters[0].key: `#request.(` is not an expression", filter("orders", "#request.(", null));
        refusedFilter("sluicegate.filters[0].key: `@tenants.of(#request)`: there is no bean `tenants`", filter("orders", "@tenants.of(#request)", null));
        refusedFilter("sluicegate.filters[0].unless: `@admins.has()`: there is no bean `admins`", filter("orders", "address", "@admins.has()"));
        refusedFilter("sluicegate.filters[0].trusted-proxies: `lb.internal` is not a network", new SluicegateProperties.Filter("orders", List.of("/**"),
            "address", List.of("lb.internal"), null, false, null, null, null, "text/plain", false, null));
        refusedFilter("sluicegate.filters[0].address-header: `X-Real-IP` is believed from trusted-proxies only", new SluicegateProperties.Filter("orders",
            List.of("/**"), "address", List.of(), "X-Real-IP", false, null, null, null, "text/plain", false, null));
        refusedFilter("sluicegate.filters[0].status: `200` is outside 400..=599", new SluicegateProperties.Filter("orders", List.of("/**"), "address",
            List.of(), null, false, null, 200, null, "text/plain", false, null));
        refusedFilter("sluicegate.filters[0].content-type: `text` is not a type of content", new SluicegateProperties.Filter("orders", List.of("/**"), "address",
            List.of(), null, false, null, null, "slow down", "text", false, null));
    }

    @Test
    void a_filter_with_a_wait_that_is_none_is_refused_at_the_start() {
        refusedFilter("sluicegate.filters[0].max-wait: `PT2S` is for a filter with `concurrency=true`", new SluicegateProperties.Filter("orders",
            List.of("/**"), "address", List.of(), null, false, null, null, null, "text/plain", false, Duration.ofSeconds(2)));
        refusedFilter("sluicegate.filters[0].max-wait: `PT-2S` is negative", new SluicegateProperties.Filter("orders",
            List.of("/**"), "address", List.of(), null, false, null, null, null, "text/plain", true, Duration.ofSeconds(-2)));
    }

    @Test
    void a_filter_of_paths_that_no_request_has_is_refused_at_the_start() {
        for (String path : new String[] {"api/**", "**", " /api"}) {
            refusedFilter("sluicegate.filters[0].paths: `" + path + "` does not begin with `/`", new SluicegateProperties.Filter("orders",
                List.of("/a", path), "address", List.of(), null, false, null, null, null, "text/plain", false, null));
        }
    }

    @Test
    void a_filter_whose_expression_names_what_is_unknown_is_refused_at_the_start() {
        refusedFilter("sluicegate.filters[0].unless: `#req.x`: `#req` is unknown; expected `#request`", filter("orders", "address", "#req.x"));
        refusedFilter("sluicegate.filters[0].unless: `#admin(#request)`: `#admin` is unknown", filter("orders", "address", "#admin(#request)"));
        refusedFilter("sluicegate.filters[0].key: `#user.id`: `#user` is unknown", filter("orders", "#user.id", null));
        refusedFilter("sluicegate.filters[0].unless: `#request ==` is not an expression", filter("orders", "address", "#request =="));
    }

    private static SluicegateProperties.Filter filter(String policy, String key, String unless) {
        return new SluicegateProperties.Filter(policy, List.of("/**"), key, List.of(), null, false, unless, null, null, "text/plain", false, null);
    }

    private static void refusedFilter(String message, SluicegateProperties.Filter filter) {
        try (TestGate gate = new TestGate(); var context = new org.springframework.context.support.GenericApplicationContext()) {
            context.refresh();
            Expressions expressions = new Expressions(context.getBeanFactory());
            Exception refused = assertThrows(IllegalArgumentException.class,
                () -> new ServletFilters(gate, new Observer[0], List.of(filter), expressions, false));
            assertTrue(refused.getMessage().startsWith(message), refused.getMessage());
        }
    }

    private static StandardEnvironment forwarding(String strategy) {
        StandardEnvironment environment = new StandardEnvironment();
        environment.getPropertySources().addFirst(new MapPropertySource("test", Map.of("server.forward-headers-strategy", strategy)));
        return environment;
    }

    @Test
    void addresses_that_clients_choose_are_found() {
        List<SluicegateProperties.Filter> byAddress = List.of(filter("orders", "address", null));
        assertFalse(ForwardedHeaders.isUnsafe(new StandardEnvironment(), byAddress));
        assertTrue(ForwardedHeaders.isUnsafe(forwarding("FRAMEWORK"), byAddress));
        assertFalse(ForwardedHeaders.isUnsafe(forwarding("FRAMEWORK"), List.of(filter("orders", "principal", null))));
        assertFalse(ForwardedHeaders.isUnsafe(forwarding("native"), byAddress));
    }

    @Test
    void policies_that_are_required_are_looked_for_at_the_start() {
        try (ConfigurableApplicationContext context = start(InMemory.class, "sluicegate.required-policies=orders,all")) {
            assertEquals("free", context.getBean(Shop.class).free());
        }
        Exception refused = assertThrows(IllegalStateException.class, () -> start(InMemory.class, "sluicegate.required-policies=orders,ordres").close());
        assertEquals("sluicegate.required-policies: policy: unknown policy `ordres`", refused.getMessage());
    }

    @Test
    void mistakes_in_settings_name_the_property_and_no_password() {
        for (String[] wrong : new String[][] {
            {"sluicegate.redis.url=http://app:secret@r:6379", "sluicegate.redis.url: `http://***@r:6379` is not an address of Redis: "},
            {"sluicegate.redis.url=redis://app:secret@r:6379/0?timeut=5s", "unknown parameter `timeut`"},
            {"sluicegate.redis.url=redis://app:secret@r:6379/0?timeout=soon", "timeout: `soon` is not a time"},
            {"sluicegate.nodes=0", "sluicegate.nodes: `0` is outside 1..=4294967295"},
            {"sluicegate.deadline=0s", "sluicegate.deadline: `0` is outside 1..=10000 ms"}}) {
            Throwable refused = assertThrows(Exception.class, () -> start(Plain.class, "sluicegate.redis.url=redis://127.0.0.1:1", wrong[0]).close(), wrong[0]);
            StringBuilder messages = new StringBuilder();
            for (Throwable cause = refused; cause != null; cause = cause.getCause()) {
                messages.append(cause).append('\n');
            }
            assertTrue(messages.toString().contains(wrong[1]), messages.toString());
            assertFalse(messages.toString().contains("secret"), messages.toString());
        }
    }

    static class Tenants {
        public String of(User user) {
            return "tenant of " + user.id();
        }
    }

    static class Office {
        @RateLimit(policy = "orders", key = "@tenants.of(#user)", unless = "#user.id == 'root'", cost = "3")
        public String open(User user) {
            return "open";
        }

        @RateLimit(policy = "orders", key = "#user.id", shared = true, cost = "3")
        public String shared(User user) {
            return "shared";
        }
    }

    static class WithBeans extends InMemory {
        @Bean
        Tenants tenants() {
            return new Tenants();
        }

        @Bean
        Office office() {
            return new Office();
        }
    }

    @Test
    void keys_may_come_from_beans_and_conditions_exempt() {
        try (ConfigurableApplicationContext context = start(WithBeans.class)) {
            Office office = context.getBean(Office.class);
            assertEquals("open", office.open(new User("a")));
            assertEquals("open", office.open(new User("b")));
            assertThrows(RateLimitExceededException.class, () -> office.open(new User("a")));
            for (int call = 0; call < 5; call++) {
                assertEquals("open", office.open(new User("root")));
            }
            assertEquals("shared", office.shared(new User("a")));
            assertEquals("shared", office.shared(new User(null)));
            assertThrows(RateLimitExceededException.class, () -> office.shared(new User("")));
        }
    }

    static class Private {
        @RateLimit(policy = "orders")
        private void create() {
            // A proxy cannot stand before it.
        }
    }

    static class Final {
        @RateLimit(policy = "orders")
        public final void create() {
            // A proxy cannot stand before it.
        }
    }

    static class Static {
        @RateLimit(policy = "orders")
        @RateLimit(policy = "all")
        public static void create() {
            // A proxy cannot stand before it.
        }
    }

    static class UnknownKey {
        @RateLimit(policy = "orders", key = "'user:' + #usr.name")
        public void create(User user) {
            // The key names no parameter.
        }
    }

    static class UnknownCost {
        @RateLimit(policy = "orders", key = "#user.id", cost = "#a1 * 2")
        public void create(User user) {
            // There is no second parameter.
        }
    }

    static class UnknownBean {
        @RateLimit(policy = "orders", key = "@tenants.of(#user)")
        public void create(User user) {
            // There is no such bean.
        }
    }

    static class UnknownUnless {
        @RateLimit(policy = "orders", key = "#user.id", unless = "#usr.id == 'root'")
        public void create(User user) {
            // The condition names no parameter.
        }
    }

    static class NoExpression {
        @RateLimit(policy = "orders", key = "#user.id", unless = "#user.id ==")
        public void create(User user) {
            // The condition ends too early.
        }
    }

    static class NoFallback {
        @RateLimit(policy = "orders", fallback = "busy")
        public void create(User user) {
            // The fallback has other parameters.
        }

        void busy(String user) {
            // It is not called.
        }
    }

    static class WrongStatus {
        @RateLimit(policy = "orders", status = 200)
        public void create(User user) {
            // The status is one of success.
        }
    }

    static class WrongType {
        @RateLimit(policy = "all")
        @RateLimit(policy = "orders", body = "slow down", contentType = "text")
        public void create(User user) {
            // The type has no second part.
        }
    }

    @Test
    void an_annotation_with_an_answer_that_is_none_is_refused_by_its_method() {
        refusedAtTheStart(WrongStatus.class, "@RateLimit at public void " + WrongStatus.class.getName() + ".create(" + User.class.getName()
            + "): status: `200` is outside 400..=599");
        refusedAtTheStart(WrongType.class, "@RateLimit at public void " + WrongType.class.getName() + ".create(" + User.class.getName()
            + "): contentType: `text` is not a type of content; expected one such as `text/plain`");
    }

    @Test
    void mistakes_in_annotations_are_refused_at_the_start() {
        String unlimited = "@RateLimit does not limit a private, final or static method";
        refusedAtTheStart(Private.class, unlimited);
        refusedAtTheStart(Final.class, unlimited);
        refusedAtTheStart(Static.class, unlimited);
        refusedAtTheStart(UnknownKey.class, "`#usr` is no parameter of");
        refusedAtTheStart(UnknownCost.class, "`#a1` is no parameter of");
        refusedAtTheStart(UnknownUnless.class, "`#usr` is no parameter of");
        refusedAtTheStart(UnknownBean.class, "there is no bean `tenants`");
        refusedAtTheStart(NoFallback.class, "there is no fallback `busy` with the parameters of");
    }

    @Test
    void an_annotation_without_an_expression_is_refused_by_its_method() {
        refusedAtTheStart(NoExpression.class, "@RateLimit: `#user.id ==` at public void " + NoExpression.class.getName() + ".create(");
    }

    private static void refusedAtTheStart(Class<?> bean, String message) {
        try (TestGate gate = new TestGate(); var context = new org.springframework.context.support.GenericApplicationContext()) {
            context.getBeanFactory().registerSingleton("gate", gate);
            context.registerBean(RateLimitPostProcessor.class, RateLimitPostProcessor::new);
            context.registerBean(bean);
            Exception refused = assertThrows(org.springframework.beans.factory.BeanCreationException.class, context::refresh);
            assertTrue(refused.getMessage().contains(message), refused.getMessage());
        }
    }

    @Test
    void a_response_of_a_policy_stays_whatever_its_status() {
        Decision refused = new Decided(false, 0, 0, 1000, 0, 1_000_000, 0, "llm", "tokens", List.of(), Mode.STORE,
            new Overflow.Response(429, Map.of(), "later"), 0);
        assertEquals("later", new OwnAnswer(420, "slow down", "text/plain").to(refused).body());
        assertEquals(429, new OwnAnswer(420, "slow down", "text/plain").to(refused).status());
    }

    @Test
    void a_refusal_is_answered_with_a_problem() {
        try (TestGate gate = new TestGate()) {
            var mail = gate.limit("mail", Limit.fixedWindow(1, Duration.ofMinutes(1)));
            mail.check("a");
            RateLimitExceededException refusal = assertThrows(RateLimitExceededException.class, () -> mail.checkOrThrow("a"));
            var answer = new RateLimitAdvice().refused(refusal);
            assertEquals(429, answer.getStatusCode().value());
            assertEquals("66", answer.getHeaders().getFirst("Retry-After"));
            assertEquals(MediaType.APPLICATION_PROBLEM_JSON, answer.getHeaders().getContentType());
        }
    }

    @Test
    void the_gate_is_made_by_properties() {
        try (TestRedis redis = TestRedis.start();
             ConfigurableApplicationContext context = start(Plain.class, "sluicegate.redis.url=" + redis.uri(), "sluicegate.app=shop",
                 "sluicegate.nodes=3", "sluicegate.deadline=5s")) {
            DirectGate gate = assertInstanceOf(DirectGate.class, context.getBean(Gate.class));
            Limiter mail = gate.limit("mail", Limit.fixedWindow(5, Duration.ofDays(366)));
            TestRedis.await("a decision of Redis", () -> mail.peek("a", 1).mode() == Mode.STORE);
        }
        try (ConfigurableApplicationContext context = start(Plain.class, "sluicegate.mode=remote", "sluicegate.server.url=http://127.0.0.1:1",
            "sluicegate.server.token=secret")) {
            assertInstanceOf(HttpGate.class, context.getBean(Gate.class));
            assertEquals("DOWN {server=does not decide, address=http://127.0.0.1:1, cause=connection refused, decisions=nothing decides meanwhile: requests"
                + " get no decision, and filters answer 503}", health(context));
            assertTrue(context.getBeanProvider(Observer.class).getIfAvailable() == null);
            assertFalse(context.containsBean("sluicegateAdvice"));
        }
    }

    @Test
    void a_native_image_has_the_script_and_the_fallbacks() {
        var hints = new org.springframework.aot.hint.RuntimeHints();
        new RateLimitHints().registerHints(hints, getClass().getClassLoader());
        assertTrue(org.springframework.aot.hint.predicate.RuntimeHintsPredicates.resource().forResource(RateLimitHints.SCRIPT).test(hints));
        assertTrue(RateLimitHints.class.getClassLoader().getResource(RateLimitHints.SCRIPT) != null);
        assertEquals(List.of("busy", "none"), RateLimitHints.fallbacks(Shop.class).stream().map(java.lang.reflect.Method::getName).sorted().toList());
    }
}
