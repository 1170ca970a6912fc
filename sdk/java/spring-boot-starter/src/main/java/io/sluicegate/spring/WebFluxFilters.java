package io.sluicegate.spring;

import io.sluicegate.Gate;
import io.sluicegate.Observer;
import io.sluicegate.webflux.RateLimitWebFilter;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** The filters of {@code sluicegate.filters}, one after the other. */
final class WebFluxFilters implements WebFilter, Ordered {
    private final FilterPaths<RateLimitWebFilter> filters;

    WebFluxFilters(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters) {
        this.filters = new FilterPaths<>(gate, observers, filters, RateLimitWebFilter::byAddress, RateLimitWebFilter::byHeader);
    }

    @Override
    public int getOrder() {
        return FilterPaths.ORDER;
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        String path = exchange.getRequest().getPath().pathWithinApplication().value();
        return pass(filters.of(path), exchange, chain);
    }

    private static Mono<Void> pass(List<RateLimitWebFilter> filters, ServerWebExchange exchange, WebFilterChain chain) {
        return filters.isEmpty() ? chain.filter(exchange)
            : filters.get(0).filter(exchange, asked -> pass(filters.subList(1, filters.size()), asked, chain));
    }
}
