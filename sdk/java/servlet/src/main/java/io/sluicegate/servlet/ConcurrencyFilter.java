package io.sluicegate.servlet;

import io.sluicegate.Acquisition;
import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * Limits how many requests are under way at once, by a policy with a {@code concurrency} rule. Each request that goes on holds a permit until it ends:
 * until the rest of the chain returns or throws, and if that started asynchronous work, until this completes, fails or times out. The permit is renewed
 * meanwhile, so a request may take longer than the ttl of the rule. Refusals are answered as by {@link RateLimitFilter}.
 *
 * <p>A request holds one permit of a filter, also if it is dispatched again or forwarded. Where the rule has a {@code queue}, a request
 * waits on its thread, for as long as the policy or {@link #waiting} says.
 */
public final class ConcurrencyFilter implements Filter {
    private static final AtomicLong FILTERS = new AtomicLong();

    private final RequestRules rules;
    private final Duration maxWait;
    /** The attribute of requests that hold a permit of this filter, or held one. */
    private final String admitted = ConcurrencyFilter.class.getName() + "." + FILTERS.incrementAndGet();

    private ConcurrencyFilter(RequestRules rules, Duration maxWait) {
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
    public static ConcurrencyFilter byAddress(Limiter limiter, ClientAddress address) {
        return new ConcurrencyFilter(RequestRules.byAddress(limiter, address), null);
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static ConcurrencyFilter byKey(Limiter limiter, Function<HttpServletRequest, String> key) {
        return new ConcurrencyFilter(RequestRules.byKey(limiter, key), null);
    }

    /**
     * Limits by a field of the header. A request with two such fields is answered with 400.
     *
     * @param limiter the limiter of a policy
     * @param name the name of the field
     * @return the filter
     */
    public static ConcurrencyFilter byHeader(Limiter limiter, String name) {
        return new ConcurrencyFilter(RequestRules.byHeader(limiter, name), null);
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost how many permits a request holds, 1 to 2^31
     * @return the filter
     */
    public ConcurrencyFilter costing(ToLongFunction<HttpServletRequest> cost) {
        return new ConcurrencyFilter(rules.costing(cost), maxWait);
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public ConcurrencyFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new ConcurrencyFilter(rules.answering(refusal), maxWait);
    }

    /**
     * Returns a copy of this filter whose requests wait for a permit, as {@link Limiter#acquire(String, Duration)}.
     *
     * @param maxWait the longest wait
     * @return the filter
     */
    public ConcurrencyFilter waiting(Duration maxWait) {
        return new ConcurrencyFilter(rules, Objects.requireNonNull(maxWait, "maxWait"));
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        boolean isHttp = request instanceof HttpServletRequest && response instanceof HttpServletResponse;
        if (!isHttp || request.getAttribute(admitted) != null) {
            chain.doFilter(request, response);
            return;
        }
        HttpServletResponse answer = (HttpServletResponse) response;
        Acquisition attempt = rules.admit((HttpServletRequest) request, answer, (limiter, key, cost) -> limiter.acquire(key, cost, maxWait),
            Acquisition::decision);
        if (attempt == null) {
            return;
        }
        try {
            attempt.orElseThrow().renewUntilClosed();
            request.setAttribute(admitted, true);
            // Beside those of other filters: each field is a list.
            HttpFields.of(attempt.decision()).forEach(answer::addHeader);
            chain.doFilter(request, response);
        } finally {
            end(request, attempt);
        }
    }

    private static void end(ServletRequest request, Acquisition attempt) {
        try {
            if (request.isAsyncStarted()) {
                // Whatever the work does meanwhile on another thread, it takes effect after this one has returned.
                request.getAsyncContext().addListener(new Closing(attempt));
                return;
            }
        } catch (IllegalStateException e) {
            // The asynchronous work is over.
        }
        attempt.close();
    }

    /** Gives the permit back when the asynchronous work of a request ends. */
    private record Closing(Acquisition attempt) implements AsyncListener {
        @Override
        public void onComplete(AsyncEvent event) {
            attempt.closeAsync();
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            attempt.closeAsync();
        }

        @Override
        public void onError(AsyncEvent event) {
            attempt.closeAsync();
        }

        // The container forgets its listeners when a request that was dispatched starts again.
        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
        }
    }
}
