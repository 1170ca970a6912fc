package io.sluicegate.servlet;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.RequestKeys;
import io.sluicegate.internal.Undecided;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * Checks each request by a policy. What passes goes on with {@code RateLimit} fields; what is refused is answered with 429
 * (503 if Redis or the server did not decide) and a problem, or with the response that the policy gives. A request that
 * has to wait is held back on its thread. One without a key is answered with 400, unless the limiter is
 * {@link Limiter#shared() shared}: then it has the budget that all such requests share.
 */
public final class RateLimitFilter implements Filter {
    private final Limiter limiter;
    private final Function<HttpServletRequest, String> key;
    /** The field that is the key, if it is one. */
    private final String header;
    /** The name of the key in answers. */
    private final String source;
    private final ToLongFunction<HttpServletRequest> cost;
    private final Function<Decision, HttpAnswer> refusal;

    private RateLimitFilter(Limiter limiter, Function<HttpServletRequest, String> key, String header, String source,
                            ToLongFunction<HttpServletRequest> cost, Function<Decision, HttpAnswer> refusal) {
        this.limiter = Objects.requireNonNull(limiter, "limiter");
        this.key = Objects.requireNonNull(key, "key");
        this.header = header;
        this.source = source;
        this.cost = Objects.requireNonNull(cost, "cost");
        this.refusal = Objects.requireNonNull(refusal, "refusal");
    }

    /**
     * Limits clients by their address.
     *
     * @param limiter the limiter of a policy
     * @param address which proxies are trusted
     * @return the filter
     */
    public static RateLimitFilter byAddress(Limiter limiter, ClientAddress address) {
        Objects.requireNonNull(address, "address");
        return new RateLimitFilter(limiter, request -> {
            String forwarded = String.join(",", Collections.list(request.getHeaders(address.header())));
            return address.key(request.getRemoteAddr(), forwarded.isEmpty() ? null : forwarded);
        }, null, "address", request -> 1, HttpAnswer::of);
    }

    /**
     * Limits by a key of the program's own.
     *
     * @param limiter the limiter of a policy
     * @param key the key of a request; null or an empty text if it has none
     * @return the filter
     */
    public static RateLimitFilter byKey(Limiter limiter, Function<HttpServletRequest, String> key) {
        return new RateLimitFilter(limiter, key, null, "key", request -> 1, HttpAnswer::of);
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
        Objects.requireNonNull(name, "name");
        return new RateLimitFilter(limiter, request -> request.getHeader(name), name, Undecided.header(name), request -> 1, HttpAnswer::of);
    }

    /**
     * Returns a copy of this filter with the costs of requests.
     *
     * @param cost the cost of a request, 1 to 2^31
     * @return the filter
     */
    public RateLimitFilter costing(ToLongFunction<HttpServletRequest> cost) {
        return new RateLimitFilter(limiter, key, header, source, cost, refusal);
    }

    /**
     * Returns a copy of this filter that answers refusals in its own way, such as {@code HttpAnswer.of(decision).with(..)}.
     *
     * @param refusal the answer to a decision that refuses
     * @return the filter
     */
    public RateLimitFilter answering(Function<Decision, HttpAnswer> refusal) {
        return new RateLimitFilter(limiter, key, header, source, cost, refusal);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest httpRequest) || !(response instanceof HttpServletResponse answer)) {
            chain.doFilter(request, response);
            return;
        }
        if (header != null && Collections.list(httpRequest.getHeaders(header)).size() > 1) {
            write(Undecided.repeated(source), answer);
            return;
        }
        String requestKey = RequestKeys.usable(key.apply(httpRequest));
        long permits = cost.applyAsLong(httpRequest);
        Decision decision;
        try {
            decision = limiter.check(requestKey, permits);
        } catch (SluicegateException e) {
            write(Undecided.answer(e, limiter.policy(), source), answer);
            return;
        }
        if (!decision.allowed()) {
            write(refusal.apply(decision), answer);
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

    private static void write(HttpAnswer content, HttpServletResponse answer) throws IOException {
        answer.setStatus(content.status());
        content.fields().forEach(answer::setHeader);
        answer.getOutputStream().write(content.body().getBytes(StandardCharsets.UTF_8));
    }
}
