package io.sluicegate.servlet;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.RequestKeys;
import io.sluicegate.internal.Undecided;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * The common part of the filters: the key and the cost of a request, and the answer to one that does not go on.
 *
 * @param header the field that is the key, if it is one; else null
 * @param source the name of the key in answers
 */
record RequestRules(Limiter limiter, Function<HttpServletRequest, String> key, String header, String source,
                    ToLongFunction<HttpServletRequest> cost, Function<Decision, HttpAnswer> refusal) {
    RequestRules {
        Objects.requireNonNull(limiter, "limiter");
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(cost, "cost");
        Objects.requireNonNull(refusal, "refusal");
    }

    static RequestRules byAddress(Limiter limiter, ClientAddress address) {
        Objects.requireNonNull(address, "address");
        return new RequestRules(limiter, request -> {
            String forwarded = String.join(",", Collections.list(request.getHeaders(address.header())));
            return address.key(request.getRemoteAddr(), forwarded.isEmpty() ? null : forwarded);
        }, null, "address", request -> 1, HttpAnswer::of);
    }

    static RequestRules byKey(Limiter limiter, Function<HttpServletRequest, String> key) {
        return new RequestRules(limiter, key, null, "key", request -> 1, HttpAnswer::of);
    }

    static RequestRules byHeader(Limiter limiter, String name) {
        Objects.requireNonNull(name, "name");
        return new RequestRules(limiter, request -> request.getHeader(name), name, Undecided.header(name), request -> 1, HttpAnswer::of);
    }

    RequestRules costing(ToLongFunction<HttpServletRequest> cost) {
        return new RequestRules(limiter, key, header, source, cost, refusal);
    }

    RequestRules answering(Function<Decision, HttpAnswer> refusal) {
        return new RequestRules(limiter, key, header, source, cost, refusal);
    }

    /** The question of a filter about a key and a cost. */
    interface Question<T> {
        T ask(Limiter limiter, String key, long cost);
    }

    /** {@return what a question comes to, or null if the request does not go on: then it is answered} */
    <T> T admit(HttpServletRequest request, HttpServletResponse answer, Question<T> question, Function<T, Decision> decisionOf) throws IOException {
        if (header != null && Collections.list(request.getHeaders(header)).size() > 1) {
            write(Undecided.repeated(source), answer);
            return null;
        }
        String requestKey = RequestKeys.usable(key.apply(request));
        long permits = cost.applyAsLong(request);
        T said;
        try {
            said = question.ask(limiter, requestKey, permits);
        } catch (SluicegateException e) {
            write(Undecided.answer(e, limiter.policy(), source), answer);
            return null;
        }
        Decision decision = decisionOf.apply(said);
        if (!decision.allowed()) {
            write(refusal.apply(decision), answer);
            return null;
        }
        return said;
    }

    private static void write(HttpAnswer content, HttpServletResponse answer) throws IOException {
        answer.setStatus(content.status());
        content.fields().forEach(answer::setHeader);
        answer.getOutputStream().write(content.body().getBytes(StandardCharsets.UTF_8));
    }
}
