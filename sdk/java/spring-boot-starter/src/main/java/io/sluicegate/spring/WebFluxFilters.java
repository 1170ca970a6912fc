package io.sluicegate.spring;

import io.sluicegate.Gate;
import io.sluicegate.Observer;
import io.sluicegate.webflux.ConcurrencyWebFilter;
import io.sluicegate.webflux.RateLimitWebFilter;
import java.security.Principal;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** The filters of {@code sluicegate.filters}, one after the other: those by the principal, or the others. */
final class WebFluxFilters implements WebFilter, Ordered {
    private static final String PRINCIPAL = WebFluxFilters.class.getName() + ".principal";
    private static final FilterPaths.Kinds<WebFilter, ServerWebExchange> KINDS = new FilterPaths.Kinds<>(
        new FilterPaths.Kind<>(RateLimitWebFilter::byAddress, RateLimitWebFilter::byHeader, RateLimitWebFilter::byKey, RateLimitWebFilter::answering,
            (filter, maxWait) -> filter),
        new FilterPaths.Kind<>(ConcurrencyWebFilter::byAddress, ConcurrencyWebFilter::byHeader, ConcurrencyWebFilter::byKey,
            ConcurrencyWebFilter::answering, ConcurrencyWebFilter::waiting),
        exchange -> exchange.getAttribute(PRINCIPAL), ServerWebExchange::getRequest);

    private final FilterPaths<WebFilter, ServerWebExchange> filters;
    private final boolean byPrincipal;

    WebFluxFilters(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters, Expressions expressions, boolean byPrincipal) {
        this.filters = new FilterPaths<>(KINDS, gate, observers, filters, expressions, byPrincipal);
        this.byPrincipal = byPrincipal;
    }

    @Override
    public int getOrder() {
        return byPrincipal ? FilterPaths.PRINCIPAL_ORDER : FilterPaths.ORDER;
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        List<WebFilter> matching = filters.of(exchange.getRequest().getPath().pathWithinApplication().value(), exchange);
        if (matching.isEmpty() || !byPrincipal) {
            return pass(matching, exchange, chain);
        }
        return exchange.getPrincipal().map(Principal::getName).defaultIfEmpty("").flatMap(name -> {
            exchange.getAttributes().put(PRINCIPAL, name);
            return pass(matching, exchange, chain);
        });
    }

    private static Mono<Void> pass(List<WebFilter> filters, ServerWebExchange exchange, WebFilterChain chain) {
        return filters.isEmpty() ? chain.filter(exchange)
            : filters.get(0).filter(exchange, nextExchange -> pass(filters.subList(1, filters.size()), nextExchange, chain));
    }
}
