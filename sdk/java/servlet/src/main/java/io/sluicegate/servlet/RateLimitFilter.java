package io.sluicegate.servlet;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * Checks each request by a policy. What passes goes on with {@code RateLimit} fields; what is refused is answered with 429
 * (503 if Redis or the server did not decide) and a problem, or with the response that the policy gives. A request that
 * has to wait is held back on its thread. One without a key is answered with 400, unless the limiter is
 * {@link Limiter#shared() shared}: then it has the budget that all such requests share.
 */
public final class RateLimitFilter implements Filter {
    private final RequestRules rules;

    private RateLimitFilter(RequestRules rules) {
        this.rules = rules;
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static RateLimitFilter byAddress(Limiter limiter, ClientAddress address) {
        return new RateLimitFilter(RequestRules.byAddress(limiter, address));
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static RateLimitFilter byKey(Limiter limiter, Function<HttpServletRequest, String> key) {
        return new RateLimitFilter(RequestRules.byKey(limiter, key));
    }

    /**
     * Limits by a field of the header. A request with two such fields is answered with 400, as a proxy may have added the
     * true one behind that of the client.
     *
     * @param limiter the limiter of a policy
     * @param name the name of the field
     * @return the filter
     */
    public static RateLimitFilter byHeader(Limiter limiter, String name) {
        return new RateLimitFilter(RequestRules.byHeader(limiter, name));
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost the cost of a request, 1 to 2^31
     * @return the filter
     */
    public RateLimitFilter costing(ToLongFunction<HttpServletRequest> cost) {
        return new RateLimitFilter(rules.costing(cost));
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public RateLimitFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new RateLimitFilter(rules.answering(refusal));
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest httpRequest) || !(response instanceof HttpServletResponse answer)) {
            chain.doFilter(request, response);
            return;
        }
        Decision decision = rules.admit(httpRequest, answer, Limiter::check, each -> each);
        if (decision == null) {
            return;
        }
        // Beside those of other filters: each field is a list.
        HttpFields.of(decision).forEach(answer::addHeader);
        hold(decision);
        chain.doFilter(request, response);
    }

    private static void hold(Decision decision) throws IOException {
        try {
            decision.sleep();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while the request was held back");
        }
    }
}
