package io.sluicegate.spring;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
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
import java.util.function.Function;
import org.springframework.core.Ordered;

/** The filters of {@code sluicegate.filters}, one after the other: those by the principal, or the others. */
final class ServletFilters implements Filter, Ordered {
    private final FilterPaths<RateLimitFilter, HttpServletRequest> filters;
    private final int order;

    ServletFilters(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters, Expressions expressions, boolean byPrincipal) {
        this.filters = new FilterPaths<>(new Servlets(), gate, observers, filters, expressions, byPrincipal);
        this.order = byPrincipal ? FilterPaths.PRINCIPAL_ORDER : FilterPaths.ORDER;
    }

    private static final class Servlets implements FilterPaths.Kind<RateLimitFilter, HttpServletRequest> {
        @Override
        public RateLimitFilter byAddress(Limiter limiter, ClientAddress address) {
            return RateLimitFilter.byAddress(limiter, address);
        }

        @Override
        public RateLimitFilter byHeader(Limiter limiter, String name) {
            return RateLimitFilter.byHeader(limiter, name);
        }

        @Override
        public RateLimitFilter byKey(Limiter limiter, Function<HttpServletRequest, String> key) {
            return RateLimitFilter.byKey(limiter, key);
        }

        @Override
        public RateLimitFilter answering(RateLimitFilter filter, Function<Decision, HttpAnswer> refusal) {
            return filter.answering(refusal);
        }

        @Override
        public String principal(HttpServletRequest request) {
            Principal user = request.getUserPrincipal();
            return user == null ? null : user.getName();
        }

        @Override
        public Object request(HttpServletRequest request) {
            return request;
        }
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

    private static void pass(List<RateLimitFilter> filters, ServletRequest request, ServletResponse response, FilterChain chain)
        throws IOException, ServletException {
        if (filters.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        filters.get(0).doFilter(request, response, (nextRequest, answer) -> pass(filters.subList(1, filters.size()), nextRequest, answer, chain));
    }
}
