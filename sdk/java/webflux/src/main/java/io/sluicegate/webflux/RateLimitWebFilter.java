package io.sluicegate.webflux;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/**
 * Checks each request by a policy, and blocks no thread of the server. What passes goes on with {@code RateLimit} fields;
 * what is refused is answered with 429 (503 if Redis or the server did not decide) and a problem, or with the response
 * that the policy gives. A request that has to wait is held back by a timer. One without a key is answered with 400,
 * unless the limiter is {@link Limiter#shared() shared}: then it has the budget that all such requests share.
 */
public final class RateLimitWebFilter implements WebFilter {
    private final RequestRules rules;

    private RateLimitWebFilter(RequestRules rules) {
        this.rules = rules;
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static RateLimitWebFilter byAddress(Limiter limiter, ClientAddress address) {
        return new RateLimitWebFilter(RequestRules.byAddress(limiter, address));
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static RateLimitWebFilter byKey(Limiter limiter, Function<ServerWebExchange, String> key) {
        return new RateLimitWebFilter(RequestRules.byKey(limiter, key));
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
        return new RateLimitWebFilter(RequestRules.byHeader(limiter, name));
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost the cost of a request, 1 to 2^31
     * @return the filter
     */
    public RateLimitWebFilter costing(ToLongFunction<ServerWebExchange> cost) {
        return new RateLimitWebFilter(rules.costing(cost));
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public RateLimitWebFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new RateLimitWebFilter(rules.answering(refusal));
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        return rules.filter(exchange, chain, Limiter::checkAsync);
    }
}
