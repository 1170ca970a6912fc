package io.sluicegate.spring;

import io.sluicegate.Gate;
import io.sluicegate.Observer;
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

/** The filters of {@code sluicegate.filters}, one after the other. */
final class ServletFilters implements Filter, Ordered {
    private final FilterPaths<RateLimitFilter> filters;

    ServletFilters(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters) {
        this.filters = new FilterPaths<>(gate, observers, filters, RateLimitFilter::byAddress, RateLimitFilter::byHeader);
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
        pass(filters.of(path), request, response, chain);
    }

    private static void pass(List<RateLimitFilter> filters, ServletRequest request, ServletResponse response, FilterChain chain)
        throws IOException, ServletException {
        if (filters.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        filters.get(0).doFilter(request, response, (asked, answer) -> pass(filters.subList(1, filters.size()), asked, answer, chain));
    }
}
