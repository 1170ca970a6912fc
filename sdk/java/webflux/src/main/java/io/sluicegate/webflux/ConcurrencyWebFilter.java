package io.sluicegate.webflux;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import io.sluicegate.internal.HeldPermits;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/**
 * Limits how many requests are under way at once, by a policy with a {@code concurrency} rule, and blocks no thread of the server. Each request that goes on
 * holds a permit until the rest of the chain completes, fails or is cancelled, as when the client disconnects. The permit is renewed meanwhile, so a
 * request may take longer than the ttl of the rule. Refusals are answered as by {@link RateLimitWebFilter}.
 *
 * <p>Where the rule has a {@code queue}, a request waits, for as long as the policy or {@link #waiting} says. If its client disconnects
 * meanwhile, it waits no longer.
 */
public final class ConcurrencyWebFilter implements WebFilter {
    private final RequestRules rules;
    private final Duration maxWait;

    private ConcurrencyWebFilter(RequestRules rules, Duration maxWait) {
        this.rules = rules;
        this.maxWait = maxWait;
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static ConcurrencyWebFilter byAddress(Limiter limiter, ClientAddress address) {
        return new ConcurrencyWebFilter(RequestRules.byAddress(limiter, address), null);
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static ConcurrencyWebFilter byKey(Limiter limiter, Function<ServerWebExchange, String> key) {
        return new ConcurrencyWebFilter(RequestRules.byKey(limiter, key), null);
    }

    /**
     * Limits by a field of the header. A request with two such fields is answered with 400.
     *
     * @param limiter the limiter of a policy
     * @param name the name of the field
     * @return the filter
     */
    public static ConcurrencyWebFilter byHeader(Limiter limiter, String name) {
        return new ConcurrencyWebFilter(RequestRules.byHeader(limiter, name), null);
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost how many permits a request holds, 1 to 2^31
     * @return the filter
     */
    public ConcurrencyWebFilter costing(ToLongFunction<ServerWebExchange> cost) {
        return new ConcurrencyWebFilter(rules.costing(cost), maxWait);
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public ConcurrencyWebFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new ConcurrencyWebFilter(rules.answering(refusal), maxWait);
    }

    /**
     * Returns a copy of this filter whose requests wait for a permit, as {@link Limiter#acquire(String, Duration)}.
     *
     * @param maxWait the longest wait
     * @return the filter
     */
    public ConcurrencyWebFilter waiting(Duration maxWait) {
        return new ConcurrencyWebFilter(rules, Objects.requireNonNull(maxWait, "maxWait"));
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        // The owner is there before the permit: a request that is cancelled at any moment gives back what it has.
        return Mono.usingWhen(Mono.fromSupplier(HeldPermits::new),
            held -> rules.filter(exchange, chain, (limiter, key, cost) -> held.acquire(limiter, key, cost, maxWait)),
            ConcurrencyWebFilter::release, (held, problem) -> release(held), ConcurrencyWebFilter::release);
    }

    private static Mono<Void> release(HeldPermits held) {
        return Mono.fromFuture(held::closeAsync).publishOn(Schedulers.parallel());
    }
}
