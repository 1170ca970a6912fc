package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.Gate;
import io.sluicegate.testing.ConcurrencyContract;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** Filters with {@code concurrency=true}, and {@code @ConcurrencyLimit} at a controller, in an application of Spring Boot. */
abstract class ConcurrencyFiltersContract extends ConcurrencyContract {
    private final Class<?> application;
    private final WebApplicationType type;
    private ConfigurableApplicationContext context;

    ConcurrencyFiltersContract(Class<?> application, WebApplicationType type) {
        this.application = application;
        this.type = type;
    }

    private ConfigurableApplicationContext run(Map<String, Object> beans, List<String> more) {
        List<String> properties = new ArrayList<>(List.of("spring.main.banner-mode=off", "server.port=0", "server.address=127.0.0.1",
            "logging.level.root=off"));
        properties.addAll(more);
        return new SpringApplicationBuilder(application).web(type).logStartupInfo(false)
            .initializers(made -> beans.forEach((name, bean) -> made.getBeanFactory().registerSingleton(name, bean)))
            .properties(properties.toArray(String[]::new)).run();
    }

    private static int port(ConfigurableApplicationContext context) {
        return Integer.parseInt(context.getEnvironment().getProperty("local.server.port"));
    }

    @Override
    protected int serve(Gate gate, List<String> policies) {
        List<String> properties = new ArrayList<>();
        for (String policy : policies) {
            String filter = "sluicegate.filters[" + policies.indexOf(policy) + "].";
            properties.addAll(List.of(filter + "policy=" + policy, filter + "paths=/" + policy + "/**", filter + "key=header:X-Tenant",
                filter + "concurrency=true"));
        }
        String own = "sluicegate.filters[" + policies.size() + "].";
        properties.addAll(List.of(own + "policy=pool", own + "paths=/own/**", own + "key=header:X-Tenant", own + "concurrency=true", own + "status=420",
            own + "body=slow down"));
        context = run(Map.of("gate", gate, "work", work), properties);
        return port(context);
    }

    @Override
    protected void end() {
        context.close();
    }

    @Test
    void a_filter_has_an_answer_of_its_own() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> held = new ArrayList<>();
        for (int number = 0; number < LIMIT; number++) {
            held.add(begin("/own/later", "own"));
        }
        TestRedis.await("all inside", () -> work.inside() == LIMIT);
        HttpResponse<String> refused = get("/own/hello", "X-Tenant", "own");
        assertEquals("420 slow down", refused.statusCode() + " " + refused.body());
        work.letGo();
        for (CompletableFuture<HttpResponse<String>> each : held) {
            assertEquals(200, each.get(20, TimeUnit.SECONDS).statusCode());
        }
        becomesFree("own");
    }

    @Test
    void a_method_of_a_controller_holds_its_permit() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> all = new ArrayList<>();
        for (int number = 0; number < 10 * LIMIT; number++) {
            all.add(begin("/method", ""));
        }
        TestRedis.await("refusals", () -> all.stream().filter(CompletableFuture::isDone).count() == 9 * LIMIT);
        assertEquals(LIMIT, work.inside());
        assertEquals(0, free("method"));
        work.letGo();
        int passed = 0;
        for (CompletableFuture<HttpResponse<String>> each : all) {
            HttpResponse<String> response = each.get(20, TimeUnit.SECONDS);
            passed += response.statusCode() == 200 ? 1 : 0;
            assertEquals("\"limit\";q=5;qu=\"concurrent-requests\"", field(response, "RateLimit-Policy"));
        }
        assertEquals(LIMIT, passed);
        becomesFree("method");
    }

    @Test
    void requests_wait_at_a_server_for_those_before_them() throws Exception {
        Work waited = new Work();
        String filter = "sluicegate.filters[0].";
        try (TestServer server = TestServer.start("{\"policies\":[{\"name\":\"db\",\"rules\":[{\"concurrency\":{\"limit\":5,\"ttl\":\"5m\",\"queue\":50}}]}]}", null);
             ConfigurableApplicationContext remote = run(Map.of("work", waited), List.of("sluicegate.mode=remote", "sluicegate.server.url=" + server.http(),
                 "sluicegate.server.timeout=5s", filter + "policy=db", filter + "key=header:X-Tenant", filter + "concurrency=true", filter + "max-wait=20s"))) {
            HttpClient client = HttpClient.newHttpClient();
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port(remote) + "/db/later")).header("X-Tenant", "k").build();
            List<CompletableFuture<HttpResponse<String>>> all = new ArrayList<>();
            for (int number = 0; number < LIMIT + 2; number++) {
                all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString()));
            }
            TestRedis.await("five inside", () -> waited.inside() == LIMIT);
            waited.letGo();
            TestRedis.await("two inside", () -> waited.inside() == 2);
            waited.letGo();
            for (CompletableFuture<HttpResponse<String>> each : all) {
                assertEquals(200, each.get(20, TimeUnit.SECONDS).statusCode());
            }
            Gate gate = remote.getBean(Gate.class);
            TestRedis.await("all permits", () -> gate.policy("db").peek("k").remaining() == LIMIT);
        }
    }
}
