package io.sluicegate.webflux;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.RequestKeys;
import io.sluicegate.internal.Undecided;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import java.util.stream.Stream;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * Checks each request by a policy, and blocks no thread of the server. What passes goes on with {@code RateLimit} fields;
 * what is refused is answered with 429 (503 if Redis or the server did not decide) and a problem, or with the response
 * that the policy gives. A request that has to wait is held back by a timer. One without a key is answered with 400,
 * unless the limiter is {@link Limiter#shared() shared}: then it has the budget that all such requests share.
 */
public final class RateLimitWebFilter implements WebFilter {
    private final Limiter limiter;
    private final Function<ServerWebExchange, String> key;
    /** The field that is the key, if it is one. */
    private final String header;
    /** The name of the key in answers. */
    private final String source;
    private final ToLongFunction<ServerWebExchange> cost;
    private final Function<Decision, HttpAnswer> refusal;

    private RateLimitWebFilter(Limiter limiter, Function<ServerWebExchange, String> key, String header, String source,
                               ToLongFunction<ServerWebExchange> cost, Function<Decision, HttpAnswer> refusal) {
        this.limiter = Objects.requireNonNull(limiter, "limiter");
        this.key = Objects.requireNonNull(key, "key");
        this.header = header;
        this.source = source;
        this.cost = Objects.requireNonNull(cost, "cost");
        this.refusal = Objects.requireNonNull(refusal, "refusal");
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static RateLimitWebFilter byAddress(Limiter limiter, ClientAddress address) {
        Objects.requireNonNull(address, "address");
        return new RateLimitWebFilter(limiter, exchange -> {
            InetSocketAddress peer = exchange.getRequest().getRemoteAddress();
            if (peer == null || peer.getAddress() == null) {
                return null;
            }
            List<String> forwarded = values(exchange, address.header()).toList();
            return address.key(peer.getAddress().getHostAddress(), forwarded.isEmpty() ? null : String.join(",", forwarded));
        }, null, "address", exchange -> 1, HttpAnswer::of);
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static RateLimitWebFilter byKey(Limiter limiter, Function<ServerWebExchange, String> key) {
        return new RateLimitWebFilter(limiter, key, null, "key", exchange -> 1, HttpAnswer::of);
    }

    /**
     * Limits by a field of the header. A request with two such fields is answered with 400, as a proxy may have added the
     * true one behind that of the client.
     *
     * @param limiter the limiter of a policy
     * @param name the name of the field
     * @return the filter
     */
    public static RateLimitWebFilter byHeader(Limiter limiter, String name) {
        Objects.requireNonNull(name, "name");
        return new RateLimitWebFilter(limiter, exchange -> exchange.getRequest().getHeaders().getFirst(name), name, Undecided.header(name),
            exchange -> 1, HttpAnswer::of);
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost the cost of a request, 1 to 2^31
     * @return the filter
     */
    public RateLimitWebFilter costing(ToLongFunction<ServerWebExchange> cost) {
        return new RateLimitWebFilter(limiter, key, header, source, cost, refusal);
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public RateLimitWebFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new RateLimitWebFilter(limiter, key, header, source, cost, refusal);
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        ServerHttpResponse response = exchange.getResponse();
        if (header != null && values(exchange, header).count() > 1) {
            return write(Undecided.repeated(source), response);
        }
        // What follows runs on a thread of Reactor, not on one of the limiter.
        return Mono.fromFuture(() -> limiter.checkAsync(RequestKeys.usable(key.apply(exchange)), cost.applyAsLong(exchange)))
            .publishOn(Schedulers.parallel())
            .map(decision -> decision.allowed() ? pass(decision, exchange, chain) : write(refusal.apply(decision), response))
            .onErrorResume(SluicegateException.class, undecided -> {
                HttpAnswer answer = Undecided.answer(undecided, limiter.policy(), source);
                return Mono.just(Mono.defer(() -> write(answer, response)));
            })
            .flatMap(answer -> answer);
    }

    // By the set, which is the same in Spring 6 and 7, and as the values were sent: Spring's lists have neither quotes nor empty members.
    private static Stream<String> values(ServerWebExchange exchange, String name) {
        return exchange.getRequest().getHeaders().headerSet().stream().filter(each -> each.getKey().equalsIgnoreCase(name))
            .flatMap(each -> each.getValue().stream());
    }

    private static Mono<Void> pass(Decision decision, ServerWebExchange exchange, WebFilterChain chain) {
        // Beside those of other filters: each field is a list.
        HttpFields.of(decision).forEach(exchange.getResponse().getHeaders()::add);
        Mono<Void> onward = Mono.defer(() -> chain.filter(exchange));
        return decision.waitUs() > 0 ? Mono.delay(Duration.of(decision.waitUs(), ChronoUnit.MICROS)).then(onward) : onward;
    }

    private static Mono<Void> write(HttpAnswer answer, ServerHttpResponse response) {
        response.setStatusCode(HttpStatusCode.valueOf(answer.status()));
        answer.fields().forEach(response.getHeaders()::set);
        return response.writeWith(Mono.fromSupplier(() -> response.bufferFactory().wrap(answer.body().getBytes(StandardCharsets.UTF_8))));
    }
}
