package io.sluicegate.webflux;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import io.sluicegate.Overflow;
import io.sluicegate.internal.RequestKeys;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * Checks each request by a policy, and blocks no thread of the server. What passes goes on with {@code RateLimit} fields;
 * what is refused is answered with 429 (503 where nobody could decide) and a problem, or with the response that the policy
 * says. A request that has to wait is held back by a timer.
 */
public final class RateLimitWebFilter implements WebFilter {
    private final Limiter limiter;
    private final Function<ServerWebExchange, String> key;
    private final ToLongFunction<ServerWebExchange> cost;

    private RateLimitWebFilter(Limiter limiter, Function<ServerWebExchange, String> key, ToLongFunction<ServerWebExchange> cost) {
        this.limiter = limiter;
        this.key = key;
        this.cost = cost;
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static RateLimitWebFilter byAddress(Limiter limiter, ClientAddress address) {
        return byKey(limiter, exchange -> {
            InetSocketAddress peer = exchange.getRequest().getRemoteAddress();
            if (peer == null || peer.getAddress() == null) {
                return null;
            }
            List<String> forwarded = exchange.getRequest().getHeaders().getValuesAsList("X-Forwarded-For");
            return address.key(peer.getAddress().getHostAddress(), forwarded.isEmpty() ? null : String.join(",", forwarded));
        });
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text for the budget that all share
     * @return the filter
     */
    public static RateLimitWebFilter byKey(Limiter limiter, Function<ServerWebExchange, String> key) {
        return new RateLimitWebFilter(limiter, key, exchange -> 1);
    }

    /**
     * The same filter with costs.
     *
     * @param cost the cost of a request, 1 to 2^31
     * @return the filter
     */
    public RateLimitWebFilter costing(ToLongFunction<ServerWebExchange> cost) {
        return new RateLimitWebFilter(limiter, key, cost);
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        // What follows runs on a thread of Reactor, not on one of the limiter.
        return Mono.fromFuture(() -> limiter.checkAsync(RequestKeys.usable(key.apply(exchange)), cost.applyAsLong(exchange)))
            .publishOn(Schedulers.parallel())
            .flatMap(decision -> decision.allowed() ? pass(decision, exchange, chain) : refuse(decision, exchange.getResponse()));
    }

    private static Mono<Void> pass(Decision decision, ServerWebExchange exchange, WebFilterChain chain) {
        HttpFields.of(decision).forEach(exchange.getResponse().getHeaders()::set);
        Mono<Void> onward = Mono.defer(() -> chain.filter(exchange));
        return decision.waitUs() > 0 ? Mono.delay(Duration.of(decision.waitUs(), ChronoUnit.MICROS)).then(onward) : onward;
    }

    private static Mono<Void> refuse(Decision decision, ServerHttpResponse response) {
        HttpFields.of(decision).forEach(response.getHeaders()::set);
        if (decision.overflow() instanceof Overflow.Response fallback) {
            fallback.headers().forEach(response.getHeaders()::set);
            return answer(response, fallback.status(), fallback.body());
        }
        response.getHeaders().setContentType(MediaType.APPLICATION_PROBLEM_JSON);
        return answer(response, HttpFields.status(decision), HttpFields.problem(decision));
    }

    private static Mono<Void> answer(ServerHttpResponse response, int status, String body) {
        response.setStatusCode(HttpStatusCode.valueOf(status));
        return response.writeWith(Mono.fromSupplier(() -> response.bufferFactory().wrap(body.getBytes(StandardCharsets.UTF_8))));
    }
}
