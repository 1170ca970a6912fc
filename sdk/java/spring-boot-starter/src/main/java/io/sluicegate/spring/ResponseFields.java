package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.HttpFields;
import jakarta.servlet.http.HttpServletResponse;
import java.util.function.Consumer;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.util.ClassUtils;
import org.springframework.web.context.request.RequestContextHolder;
import org.springframework.web.context.request.ServletRequestAttributes;
import org.springframework.web.filter.reactive.ServerWebExchangeContextFilter;
import reactor.util.context.ContextView;

/** Adds the {@code RateLimit} fields of decisions on the answer to a request, as filters do, beside those of other decisions: each field is a list. */
final class ResponseFields {
    private static final ClassLoader LOADER = ResponseFields.class.getClassLoader();
    private static final boolean HAS_SERVLETS = ClassUtils.isPresent("jakarta.servlet.http.HttpServletResponse", LOADER)
        && ClassUtils.isPresent("org.springframework.web.context.request.ServletRequestAttributes", LOADER);
    private static final boolean HAS_EXCHANGES = ClassUtils.isPresent("org.springframework.web.filter.reactive.ServerWebExchangeContextFilter", LOADER);
    private static final Consumer<Decision> NOWHERE = decision -> { };

    private ResponseFields() {}

    /** {@return what sets fields on the answer to the request that this thread serves, if it serves one} */
    static Consumer<Decision> ofThread() {
        return HAS_SERVLETS ? OfServlets.ofThread() : NOWHERE;
    }

    /** {@return what sets fields on the answer to the request that a subscription serves, if it serves one} */
    static Consumer<Decision> of(ContextView context) {
        return HAS_EXCHANGES ? OfExchanges.of(context) : NOWHERE;
    }

    /** Apart, as its classes may not be there. */
    private static final class OfServlets {
        static Consumer<Decision> ofThread() {
            if (!(RequestContextHolder.getRequestAttributes() instanceof ServletRequestAttributes served) || served.getResponse() == null) {
                return NOWHERE;
            }
            HttpServletResponse response = served.getResponse();
            return decision -> {
                if (!response.isCommitted()) {
                    HttpFields.of(decision).forEach(response::addHeader);
                }
            };
        }
    }

    /** Apart, as its classes may not be there. */
    private static final class OfExchanges {
        static Consumer<Decision> of(ContextView context) {
            return ServerWebExchangeContextFilter.getExchange(context).<Consumer<Decision>>map(exchange -> decision -> {
                ServerHttpResponse response = exchange.getResponse();
                if (!response.isCommitted()) {
                    HttpFields.of(decision).forEach(response.getHeaders()::add);
                }
            }).orElse(NOWHERE);
        }
    }
}
