package io.sluicegate.webflux;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.testing.ConcurrencyContract;
import io.sluicegate.testing.TestRedis;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.springframework.http.server.reactive.ReactorHttpHandlerAdapter;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebHandler;
import org.springframework.web.server.adapter.WebHttpHandlerBuilder;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.netty.DisposableServer;
import reactor.netty.http.server.HttpServer;

class ConcurrencyWebFilterTest extends ConcurrencyContract {
    private DisposableServer server;
    private final List<Call> calls = new CopyOnWriteArrayList<>();

    @Override
    protected int serve(Gate gate, List<String> policies) {
        WebHandler works = this::handle;
        WebHttpHandlerBuilder builder = WebHttpHandlerBuilder.webHandler(works);
        for (String policy : policies) {
            builder.filter(at("/" + policy + "/", ConcurrencyWebFilter.byHeader(gate.policy(policy), "X-Tenant")));
        }
        builder.filter(at("/own/", ConcurrencyWebFilter.byKey(gate.policy("pool"), exchange -> "own").costing(exchange -> LIMIT)
            .answering(refusal -> HttpAnswer.of(refusal).with(420))));
        builder.filter(at("/slow/", ConcurrencyWebFilter.byKey(new Limiter("slow", new Slow()), exchange -> "k").waiting(Duration.ofSeconds(5))));
        server = HttpServer.create().host("127.0.0.1").port(0).handle(new ReactorHttpHandlerAdapter(builder.build())).bindNow(Duration.ofSeconds(20));
        return server.port();
    }

    private Mono<Void> handle(ServerWebExchange exchange) {
        String path = exchange.getRequest().getPath().value();
        return switch (path.substring(path.lastIndexOf('/') + 1)) {
            case "hold", "later" -> write(exchange, Mono.fromFuture(work::begin).publishOn(Schedulers.parallel()));
            case "fail" -> Mono.error(new IllegalStateException("as the test asks"));
            case "stream" -> stream(exchange.getResponse());
            default -> write(exchange, Mono.just("hello"));
        };
    }

    private static Mono<Void> write(ServerWebExchange exchange, Mono<String> text) {
        ServerHttpResponse response = exchange.getResponse();
        return response.writeWith(text.map(each -> response.bufferFactory().wrap(each.getBytes(StandardCharsets.UTF_8))));
    }

    private static Mono<Void> stream(ServerHttpResponse response) {
        return response.writeAndFlushWith(Flux.generate(sink -> sink.next(1)).map(each -> Mono.just(response.bufferFactory().wrap(new byte[8192]))));
    }

    private static WebFilter at(String path, WebFilter filter) {
        return (exchange, chain) -> exchange.getRequest().getPath().value().startsWith(path) ? filter.filter(exchange, chain) : chain.filter(exchange);
    }

    /** A transport that gives no answer to an acquire. */
    private final class Slow implements Transport {
        @Override
        public Decision decide(Call call) {
            throw new AssertionError("a thread waits");
        }

        @Override
        public CompletableFuture<Decision> decideAsync(Call call) {
            calls.add(call);
            return call.verb() == Verb.ACQUIRE ? new CompletableFuture<>() : memory.policy("pool").releaseAsync("k", call.id());
        }
    }

    @Override
    protected void end() {
        server.disposeNow();
    }

    @Test
    void a_client_that_goes_frees_its_permit_before_the_work_ends() {
        CompletableFuture<HttpResponse<String>> gone = begin("/pool/later", "gone");
        TestRedis.await("one inside", () -> work.inside() == 1);
        assertEquals(LIMIT - 1, free("gone"));
        gone.cancel(true);
        becomesFree("gone");
        work.letGo();
    }

    @Test
    void a_client_that_goes_before_the_answer_releases_the_name() {
        CompletableFuture<HttpResponse<String>> gone = begin("/slow/hello", "");
        TestRedis.await("the acquire", () -> calls.size() == 1);
        assertEquals(5_000_000, calls.get(0).maxWaitUs());
        gone.cancel(true);
        TestRedis.await("the release", () -> calls.size() >= 2);
        assertTrue(calls.get(1).verb() == Verb.RELEASE && calls.get(1).id().equals(calls.get(0).id()), calls.toString());
    }

    @Test
    void a_filter_has_a_cost_and_an_answer_of_its_own() throws Exception {
        CompletableFuture<HttpResponse<String>> held = begin("/own/later", "");
        TestRedis.await("one inside", () -> work.inside() == 1);
        assertEquals(0, free("own"));
        assertEquals(420, get("/own/hello").statusCode());
        work.letGo();
        assertEquals(200, held.get(20, TimeUnit.SECONDS).statusCode());
        becomesFree("own");
    }
}
