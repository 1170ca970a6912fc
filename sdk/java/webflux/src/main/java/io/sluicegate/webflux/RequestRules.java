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
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import java.util.stream.Stream;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * The common part of the filters: the key and the cost of a request, and the answer to one that does not go on.
 *
 * @param header the field that is the key, if it is one; else null
 * @param source the name of the key in answers
 */
record RequestRules(Limiter limiter, Function<ServerWebExchange, String> key, String header, String source,
                    ToLongFunction<ServerWebExchange> cost, Function<Decision, HttpAnswer> refusal) {
    RequestRules {
        Objects.requireNonNull(limiter, "limiter");
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(cost, "cost");
        Objects.requireNonNull(refusal, "refusal");
    }

    static RequestRules byAddress(Limiter limiter, ClientAddress address) {
        Objects.requireNonNull(address, "address");
        return new RequestRules(limiter, exchange -> {
            InetSocketAddress peer = exchange.getRequest().getRemoteAddress();
            if (peer == null || peer.getAddress() == null) {
                return null;
            }
            List<String> forwarded = values(exchange, address.header()).toList();
            return address.key(peer.getAddress().getHostAddress(), forwarded.isEmpty() ? null : String.join(",", forwarded));
        }, null, "address", exchange -> 1, HttpAnswer::of);
    }

    static RequestRules byKey(Limiter limiter, Function<ServerWebExchange, String> key) {
        return new RequestRules(limiter, key, null, "key", exchange -> 1, HttpAnswer::of);
    }

    static RequestRules byHeader(Limiter limiter, String name) {
        Objects.requireNonNull(name, "name");
        return new RequestRules(limiter, exchange -> exchange.getRequest().getHeaders().getFirst(name), name, Undecided.header(name),
            exchange -> 1, HttpAnswer::of);
    }

    RequestRules costing(ToLongFunction<ServerWebExchange> cost) {
        return new RequestRules(limiter, key, header, source, cost, refusal);
    }

    RequestRules answering(Function<Decision, HttpAnswer> refusal) {
        return new RequestRules(limiter, key, header, source, cost, refusal);
    }

    /** The question of a filter about a key and a cost. */
    interface Question {
        CompletableFuture<Decision> ask(Limiter limiter, String key, long cost);
    }

    /** {@return the answer to a request, or what the chain makes of one that goes on} */
    Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain, Question question) {
        ServerHttpResponse response = exchange.getResponse();
        if (header != null && values(exchange, header).count() > 1) {
            return write(Undecided.repeated(source), response);
        }
        // What follows runs on a thread of Reactor, not on one of the limiter.
        return Mono.fromFuture(() -> question.ask(limiter, RequestKeys.usable(key.apply(exchange)), cost.applyAsLong(exchange)))
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
