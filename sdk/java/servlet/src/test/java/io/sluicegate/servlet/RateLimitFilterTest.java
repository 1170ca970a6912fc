package io.sluicegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.ClientAddress;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.EnumSet;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class RateLimitFilterTest {
    private final InMemoryGate gate = Sluicegate.inMemory(Clock.fixed(Instant.parse("2026-03-01T00:00:00Z"), ZoneOffset.UTC));
    private final Server server = new Server();
    private final HttpClient client = HttpClient.newHttpClient();
    private int port;

    private static final class Hello extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.getWriter().write("hello");
        }
    }

    private static String policy(String name, String overflow) {
        return "{\"name\":\"" + name + "\",\"rules\":[{\"fixed_window\":{\"limit\":1,\"window\":\"1h\"}}],\"overflow\":" + overflow + "}";
    }

    @BeforeAll
    void start() throws Exception {
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new Hello()), "/*");
        guard(context, "/reject", RateLimitFilter.byAddress(gate.document(policy("reject", "\"reject\"")), ClientAddress.behind()));
        guard(context, "/shadow", byHeader(gate.document(policy("shadow", "\"shadow\""))));
        guard(context, "/degrade", byHeader(gate.document(
            policy("degrade", "{\"degrade\":{\"response\":{\"status\":203,\"body\":\"later\",\"headers\":{\"x-a\":\"b\"}}}}"))));
        guard(context, "/tenant", byHeader(gate.document(policy("tenant", "\"reject\""))));
        guard(context, "/cost", byHeader(gate.document(policy("cost", "\"reject\""))).costing(request -> 2));
        server.setHandler(context);
        server.start();
        port = connector.getLocalPort();
    }

    private static RateLimitFilter byHeader(Limiter limiter) {
        return RateLimitFilter.byKey(limiter, request -> request.getHeader("X-Tenant"));
    }

    private static void guard(ServletContextHandler context, String path, RateLimitFilter filter) {
        context.addFilter(new FilterHolder(filter), path, EnumSet.of(DispatcherType.REQUEST));
    }

    @AfterAll
    void stop() throws Exception {
        server.stop();
        gate.close();
    }

    private HttpResponse<String> get(String path, String... headers) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path));
        for (int place = 0; place < headers.length; place += 2) {
            request.header(headers[place], headers[place + 1]);
        }
        return client.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private static String field(HttpResponse<String> response, String name) {
        return response.headers().firstValue(name).orElse("");
    }

    @Test
    void what_passes_says_what_is_left_and_a_refusal_is_a_problem() throws Exception {
        HttpResponse<String> first = get("/reject", "X-Forwarded-For", "1.1.1.1");
        assertEquals(200, first.statusCode());
        assertEquals("\"fixed_window\";r=0;t=3600", field(first, "RateLimit"));
        assertEquals("\"fixed_window\";q=1;w=3600", field(first, "RateLimit-Policy"));
        // What an untrusted client says of its address changes nothing.
        HttpResponse<String> refused = get("/reject", "X-Forwarded-For", "2.2.2.2");
        assertEquals(429, refused.statusCode());
        assertEquals("3600", field(refused, "Retry-After"));
        assertEquals("application/problem+json", field(refused, "Content-Type"));
        assertTrue(refused.body().contains("quota-exceeded"));
    }

    @Test
    void shadow_passes() throws Exception {
        assertEquals("hello", get("/shadow").body());
        assertEquals("hello", get("/shadow").body());
    }

    @Test
    void the_response_of_the_policy_is_served() throws Exception {
        get("/degrade");
        HttpResponse<String> later = get("/degrade");
        assertEquals(203, later.statusCode());
        assertEquals("later", later.body());
        assertEquals("b", field(later, "x-a"));
    }

    @Test
    void keys_of_requests_may_be_empty_or_long() throws Exception {
        String longKey = "x".repeat(2000);
        assertEquals(200, get("/tenant", "X-Tenant", longKey + "1").statusCode());
        assertEquals(200, get("/tenant", "X-Tenant", longKey + "2").statusCode());
        assertEquals(429, get("/tenant", "X-Tenant", longKey + "2").statusCode());
        assertEquals(200, get("/tenant").statusCode());
        assertEquals(429, get("/tenant", "X-Tenant", "").statusCode());
    }

    @Test
    void a_cost_that_never_fits_has_no_retry() throws Exception {
        HttpResponse<String> refused = get("/cost");
        assertEquals(429, refused.statusCode());
        assertEquals("", field(refused, "Retry-After"));
    }
}
