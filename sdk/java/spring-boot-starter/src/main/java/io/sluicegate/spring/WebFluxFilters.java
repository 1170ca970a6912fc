package io.sluicegate.spring;

import io.sluicegate.ClientAddress;
import io.sluicegate.Gate;
import io.sluicegate.webflux.RateLimitWebFilter;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import org.springframework.web.util.pattern.PathPattern;
import reactor.core.publisher.Mono;

/** The filters of {@code sluicegate.filters}, one after the other. */
final class WebFluxFilters implements WebFilter, Ordered {
    private final List<Guard> guards;

    private record Guard(List<PathPattern> paths, RateLimitWebFilter filter) {}

    WebFluxFilters(Gate gate, List<SluicegateProperties.Filter> filters) {
        this.guards = filters.stream().map(filter -> new Guard(FilterPaths.patterns(filter), limiting(gate, filter))).toList();
    }

    private static RateLimitWebFilter limiting(Gate gate, SluicegateProperties.Filter filter) {
        String header = FilterPaths.header(filter);
        return header == null
            ? RateLimitWebFilter.byAddress(gate.policy(filter.policy()), ClientAddress.behind(filter.trustedProxies().toArray(String[]::new)))
            : RateLimitWebFilter.byHeader(gate.policy(filter.policy()), header);
    }

    @Override
    public int getOrder() {
        return FilterPaths.ORDER;
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        String path = exchange.getRequest().getPath().pathWithinApplication().value();
        return pass(guards.stream().filter(guard -> FilterPaths.match(guard.paths, path)).toList(), exchange, chain);
    }

    private static Mono<Void> pass(List<Guard> guards, ServerWebExchange exchange, WebFilterChain chain) {
        return guards.isEmpty() ? chain.filter(exchange)
            : guards.get(0).filter.filter(exchange, asked -> pass(guards.subList(1, guards.size()), asked, chain));
    }
}
