package io.sluicegate.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.ClientAddress;
import io.sluicegate.Gate;
import io.sluicegate.testing.MiddlewareContract;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.http.server.reactive.ReactorHttpHandlerAdapter;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebHandler;
import org.springframework.web.server.adapter.WebHttpHandlerBuilder;
import reactor.core.publisher.Mono;
import reactor.netty.DisposableServer;
import reactor.netty.http.server.HttpServer;

class RateLimitWebFilterTest extends MiddlewareContract {
    private DisposableServer server;
    private volatile String thread = "";

    @Override
    protected int serve(Gate gate, List<Guard> guards) {
        WebHandler hello = exchange -> {
            thread = Thread.currentThread().getName();
            return exchange.getResponse()
                .writeWith(Mono.just(exchange.getResponse().bufferFactory().wrap("hello".getBytes(StandardCharsets.UTF_8))));
        };
        WebHttpHandlerBuilder builder = WebHttpHandlerBuilder.webHandler(hello);
        for (Guard guard : guards) {
            builder.filter(at(guard.path(), filter(gate, guard)));
        }
        builder.filter(at("/cost", RateLimitWebFilter.byKey(gate.policy("tenant"), exchange -> "cost").costing(exchange -> 2)));
        server = HttpServer.create().host("127.0.0.1").port(0).handle(new ReactorHttpHandlerAdapter(builder.build())).bindNow(Duration.ofSeconds(20));
        return server.port();
    }

    private static WebFilter filter(Gate gate, Guard guard) {
        return guard.header() == null
            ? RateLimitWebFilter.byAddress(gate.policy(guard.policy()), ClientAddress.behind(guard.trusted().toArray(String[]::new)))
            : RateLimitWebFilter.byHeader(gate.policy(guard.policy()), guard.header());
    }

    private static WebFilter at(String path, WebFilter filter) {
        return (exchange, chain) -> exchange.getRequest().getPath().value().equals(path) ? filter.filter(exchange, chain) : chain.filter(exchange);
    }

    @Override
    protected void end() {
        server.disposeNow();
    }

    @Test
    void a_cost_that_never_fits_has_no_retry() throws Exception {
        HttpResponse<String> refused = get("/cost");
        assertEquals(429, refused.statusCode());
        assertEquals("", field(refused, "Retry-After"));
    }

    @Test
    void what_passes_goes_on_upon_a_thread_of_reactor() throws Exception {
        assertEquals(200, get("/tenant", "X-Tenant", "thread").statusCode());
        assertFalse(thread.startsWith("sluicegate"), thread);
        assertTrue(thread.startsWith("parallel"), thread);
    }
}
