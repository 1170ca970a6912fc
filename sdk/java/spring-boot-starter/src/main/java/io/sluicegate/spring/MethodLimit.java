package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.Limiter;
import io.sluicegate.internal.HeldPermits;
import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.Expression;
import org.springframework.expression.ParseException;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/**
 * A {@link RateLimit} or {@link ConcurrencyLimit} of a method, parsed.
 *
 * @param annotation its name in errors
 * @param key null for the budget that all calls share
 * @param unless null for never
 * @param holds whether a call holds its permits until it ends
 * @param maxWait for these; null: that of the policy
 */
record MethodLimit(String annotation, String policy, Expression key, Expression cost, Expression unless, String fallback, boolean shared, OwnAnswer answer,
                   boolean holds, Duration maxWait) {
    /** The annotations of a limit, and those that hold several. */
    static final List<Class<? extends Annotation>> ANNOTATIONS =
        List.of(RateLimit.class, RateLimit.All.class, ConcurrencyLimit.class, ConcurrencyLimit.All.class);
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();

    /** {@return the limits of a method, in the order of their checks} What can be given back comes first. */
    static List<MethodLimit> of(Method method) {
        Stream<MethodLimit> held = AnnotatedElementUtils.findMergedRepeatableAnnotations(method, ConcurrencyLimit.class, ConcurrencyLimit.All.class).stream()
            .map(limit -> new MethodLimit("@ConcurrencyLimit", limit.policy(), expression("@ConcurrencyLimit", limit.key(), method),
                parsed("@ConcurrencyLimit", limit.cost(), method), expression("@ConcurrencyLimit", limit.unless(), method), limit.fallback(), limit.shared(),
                answer(limit.status(), limit.body(), limit.contentType()), true, wait(limit.maxWait(), method)));
        Stream<MethodLimit> checked = AnnotatedElementUtils.findMergedRepeatableAnnotations(method, RateLimit.class, RateLimit.All.class).stream()
            .map(limit -> new MethodLimit("@RateLimit", limit.policy(), expression("@RateLimit", limit.key(), method),
                parsed("@RateLimit", limit.cost(), method), expression("@RateLimit", limit.unless(), method), limit.fallback(), limit.shared(),
                answer(limit.status(), limit.body(), limit.contentType()), false, null));
        return Stream.concat(held, checked).toList();
    }

    private static OwnAnswer answer(int status, String body, String contentType) {
        return new OwnAnswer(status == 0 ? null : status, body.isEmpty() ? null : body, contentType);
    }

    private static Expression expression(String annotation, String text, Method method) {
        return text.isEmpty() ? null : parsed(annotation, text, method);
    }

    private static Expression parsed(String annotation, String text, Method method) {
        try {
            return PARSER.parseExpression(text);
        } catch (ParseException | IllegalArgumentException | IllegalStateException e) {
            throw new IllegalStateException(annotation + ": `" + text + "` at " + method + " is not an expression: " + Expressions.reason(e), e);
        }
    }

    private static Duration wait(String text, Method method) {
        if (text.isEmpty()) {
            return null;
        }
        try {
            Duration wait = DurationStyle.detectAndParse(text);
            if (!wait.isNegative()) {
                return wait;
            }
        } catch (IllegalArgumentException e) {
            // The error below names the text.
        }
        throw new IllegalStateException("@ConcurrencyLimit at " + method + ": maxWait: `" + text + "` is not a time; expected one such as `2s`");
    }

    List<Expression> expressions() {
        return Stream.of(key, cost, unless).filter(Objects::nonNull).toList();
    }

    /** {@return the decision about a call, for which the thread waits} */
    Decision ask(Limiter limiter, String callKey, long permits, HeldPermits held) {
        return holds ? held.acquireNow(limiter, callKey, permits, maxWait) : limiter.check(callKey, permits);
    }

    /** {@return a future of the decision about a call} */
    CompletableFuture<Decision> askAsync(Limiter limiter, String callKey, long permits, HeldPermits held) {
        return holds ? held.acquire(limiter, callKey, permits, maxWait) : limiter.checkAsync(callKey, permits);
    }
}
