package io.sluicegate.spring;

import io.sluicegate.Gate;
import io.sluicegate.Observer;
import io.sluicegate.servlet.ConcurrencyFilter;
import io.sluicegate.servlet.RateLimitFilter;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.security.Principal;
import java.util.List;
import org.springframework.core.Ordered;

/** The filters of {@code sluicegate.filters}, one after the other: those by the principal, or the others. */
final class ServletFilters implements Filter, Ordered {
    private static final FilterPaths.Kinds<Filter, HttpServletRequest> KINDS = new FilterPaths.Kinds<>(
        new FilterPaths.Kind<>(RateLimitFilter::byAddress, RateLimitFilter::byHeader, RateLimitFilter::byKey, RateLimitFilter::answering,
            (filter, maxWait) -> filter),
        new FilterPaths.Kind<>(ConcurrencyFilter::byAddress, ConcurrencyFilter::byHeader, ConcurrencyFilter::byKey, ConcurrencyFilter::answering,
            ConcurrencyFilter::waiting),
        ServletFilters::principal, request -> request);

    private final FilterPaths<Filter, HttpServletRequest> filters;
    private final int order;

    ServletFilters(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters, Expressions expressions, boolean byPrincipal) {
        this.filters = new FilterPaths<>(KINDS, gate, observers, filters, expressions, byPrincipal);
        this.order = byPrincipal ? FilterPaths.PRINCIPAL_ORDER : FilterPaths.ORDER;
    }

    private static String principal(HttpServletRequest request) {
        Principal user = request.getUserPrincipal();
        return user == null ? null : user.getName();
    }

    @Override
    public int getOrder() {
        return order;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest httpRequest)) {
            chain.doFilter(request, response);
            return;
        }
        String path = httpRequest.getRequestURI().substring(httpRequest.getContextPath().length());
        pass(filters.of(path, httpRequest), request, response, chain);
    }

    private static void pass(List<Filter> filters, ServletRequest request, ServletResponse response, FilterChain chain)
        throws IOException, ServletException {
        if (filters.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        filters.get(0).doFilter(request, response, (nextRequest, answer) -> pass(filters.subList(1, filters.size()), nextRequest, answer, chain));
    }
}
