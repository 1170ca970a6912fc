package io.sluicegate.spring;

import io.sluicegate.ClientAddress;
import io.sluicegate.Gate;
import io.sluicegate.servlet.RateLimitFilter;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.web.util.pattern.PathPattern;

/** The filters of {@code sluicegate.filters}, one after the other. */
final class ServletFilters implements Filter, Ordered {
    private final List<Guard> guards;

    private record Guard(List<PathPattern> paths, RateLimitFilter filter) {}

    ServletFilters(Gate gate, List<SluicegateProperties.Filter> filters) {
        this.guards = filters.stream().map(filter -> new Guard(FilterPaths.patterns(filter), limiting(gate, filter))).toList();
    }

    private static RateLimitFilter limiting(Gate gate, SluicegateProperties.Filter filter) {
        String header = FilterPaths.header(filter);
        return header == null
            ? RateLimitFilter.byAddress(gate.policy(filter.policy()), ClientAddress.behind(filter.trustedProxies().toArray(String[]::new)))
            : RateLimitFilter.byHeader(gate.policy(filter.policy()), header);
    }

    @Override
    public int getOrder() {
        return FilterPaths.ORDER;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest asked)) {
            chain.doFilter(request, response);
            return;
        }
        String path = asked.getRequestURI().substring(asked.getContextPath().length());
        List<Guard> matching = guards.stream().filter(guard -> FilterPaths.match(guard.paths, path)).toList();
        pass(matching, request, response, chain);
    }

    private static void pass(List<Guard> guards, ServletRequest request, ServletResponse response, FilterChain chain)
        throws IOException, ServletException {
        if (guards.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        guards.get(0).filter.doFilter(request, response, (asked, answer) -> pass(guards.subList(1, guards.size()), asked, answer, chain));
    }
}
