package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import io.sluicegate.RateLimitExceededException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.reactivestreams.Publisher;
import org.springframework.aop.ProxyMethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.Expression;
import org.springframework.expression.ParseException;
import org.springframework.expression.spel.SpelNode;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ReflectionUtils;

/** Asks the gate before a method with {@link RateLimit} goes on. */
final class RateLimitInterceptor implements MethodInterceptor {
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();
    private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

    private final BeanFactory beans;
    private final BeanFactoryResolver resolver;
    /** The annotations of each method, parsed; a program has so many methods and no more. */
    private final Map<Method, List<Limit>> limits = new ConcurrentHashMap<>();

    RateLimitInterceptor(BeanFactory beans) {
        this.beans = beans;
        this.resolver = new BeanFactoryResolver(beans);
    }

    /** One annotation, parsed. */
    record Limit(String policy, Expression key, Expression cost, Expression unless, String fallback, boolean shared, OwnAnswer answer) {
        List<Expression> expressions() {
            return Stream.of(key, cost, unless).filter(Objects::nonNull).toList();
        }
    }

    /** The check of one annotation before a call. */
    record PermitCheck(Limiter limiter, String key, long cost, Limit limit) {}

    /** A limiter refused a call of one annotation. */
    record Refusal(PermitCheck check, Decision decision) {}

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), call.getThis().getClass());
        List<PermitCheck> checks = checksOf(call, method);
        Class<?> returns = method.getReturnType();
        if (CompletionStage.class.isAssignableFrom(returns) && returns.isAssignableFrom(CompletableFuture.class)) {
            MethodInvocation later = clone(call);
            return permitted(checks, 0, ResponseFields.ofThread()).thenCompose(refusal -> staged(() -> proceed(later, method, refusal)));
        }
        if (Coroutines.isSuspending(method)) {
            MethodInvocation later = clone(call);
            Consumer<Decision> passedHere = ResponseFields.ofThread();
            return ReactiveCalls.limited(Coroutines.publisherOf(method), passed -> permitted(checks, 0, passedHere.andThen(passed)),
                refusal -> Coroutines.publisher(proceed(clone(later), method, refusal)));
        }
        if (Publisher.class.isAssignableFrom(returns) || Coroutines.isFlow(returns)) {
            // Each subscription is a call of its own.
            MethodInvocation each = clone(call);
            return ReactiveCalls.limited(returns, passed -> permitted(checks, 0, passed), refusal -> proceed(clone(each), method, refusal));
        }
        Consumer<Decision> passed = ResponseFields.ofThread();
        for (PermitCheck check : checks) {
            Decision decision = check.limiter.check(check.key, check.cost);
            if (!decision.allowed()) {
                return refused(call, method, new Refusal(check, decision));
            }
            passed.accept(decision);
            decision.sleep();
        }
        return call.proceed();
    }

    private List<PermitCheck> checksOf(MethodInvocation call, Method method) {
        MethodBasedEvaluationContext context = new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), NAMES);
        context.setBeanResolver(resolver);
        Gate gate = beans.getBean(Gate.class);
        Observer[] observers = beans.getBeanProvider(Observer.class).orderedStream().toArray(Observer[]::new);
        return limits.computeIfAbsent(method, RateLimitInterceptor::limits).stream().filter(limit -> isAsked(limit, context)).map(limit -> {
            Long cost = limit.cost.getValue(context, Long.class);
            Limiter limiter = observers.length == 0 ? gate.policy(limit.policy) : gate.policy(limit.policy).observedBy(observers);
            if (limit.key == null) {
                return new PermitCheck(limiter.shared(), "", cost == null ? 0 : cost, limit);
            }
            Object key = limit.key.getValue(context);
            // A key that is missing is empty, which the limiter refuses.
            return new PermitCheck(limit.shared ? limiter.shared() : limiter, key == null ? "" : key.toString(), cost == null ? 0 : cost, limit);
        }).toList();
    }

    private static boolean isAsked(Limit limit, EvaluationContext context) {
        return limit.unless == null || !Boolean.TRUE.equals(limit.unless.getValue(context, Boolean.class));
    }

    private static List<Limit> limits(Method method) {
        return AnnotatedElementUtils.findMergedRepeatableAnnotations(method, RateLimit.class, RateLimit.All.class).stream()
            .map(limit -> new Limit(limit.policy(), limit.key().isEmpty() ? null : parsed(limit.key(), method),
                parsed(limit.cost(), method), limit.unless().isEmpty() ? null : parsed(limit.unless(), method),
                limit.fallback(), limit.shared(), answer(limit)))
            .toList();
    }

    private static OwnAnswer answer(RateLimit limit) {
        return new OwnAnswer(limit.status() == 0 ? null : limit.status(), limit.body().isEmpty() ? null : limit.body(), limit.contentType());
    }

    private static Expression parsed(String text, Method method) {
        try {
            return PARSER.parseExpression(text);
        } catch (ParseException | IllegalArgumentException | IllegalStateException e) {
            throw new IllegalStateException("@RateLimit: `" + text + "` at " + method + " is not an expression: " + Expressions.reason(e), e);
        }
    }

    /** Finds mistakes in the annotations of a method of a bean, before the first call does. */
    static void refuseMistakes(Method method, Class<?> bean, BeanFactory beans) {
        for (Limit limit : limits(method)) {
            Coroutines.refuseUnsupported(method);
            Set<String> variables = variables(method);
            for (Expression expression : limit.expressions()) {
                SpelNode node = ((SpelExpression) expression).getAST();
                String name = Expressions.unknownName(node, variables);
                if (name != null) {
                    throw new IllegalStateException("@RateLimit: `" + name + "` is no parameter of " + method
                        + "; without the compiler option -parameters they are #a0, #a1, ...");
                }
                String unknown = Expressions.unknownBean(node, beans);
                if (unknown != null) {
                    throw new IllegalStateException("@RateLimit: `" + expression.getExpressionString() + "` at " + method
                        + ": there is no bean `" + unknown + "`");
                }
            }
            String mistake = limit.answer.mistake("contentType");
            if (mistake != null) {
                throw new IllegalStateException("@RateLimit at " + method + ": " + mistake);
            }
            if (!limit.fallback.isEmpty() && fallback(bean, method, limit.fallback).isEmpty()) {
                throw noFallback(limit.fallback, method);
            }
        }
    }

    /** The variables that expressions may name: parameters by their names, if the compiler kept them, and by their places. */
    private static Set<String> variables(Method method) {
        Set<String> variables = new HashSet<>(Set.of("#this", "#root"));
        String[] names = NAMES.getParameterNames(method);
        for (int place = 0; place < Coroutines.written(method, method.getParameterTypes()).length; place++) {
            variables.addAll(List.of("#a" + place, "#p" + place));
            if (names != null) {
                variables.add("#" + names[place]);
            }
        }
        return variables;
    }

    /** A method in place of one that is refused. */
    record Fallback(Method method, boolean takesRefusal) {}

    static Optional<Fallback> fallback(Class<?> bean, Method method, String name) {
        Class<?>[] types = Coroutines.written(method, method.getParameterTypes());
        Class<?>[] more = with(types, RateLimitExceededException.class);
        Method found = ReflectionUtils.findMethod(bean, name, types);
        Method foundMore = ReflectionUtils.findMethod(bean, name, more);
        if (Coroutines.isSuspending(method)) {
            // A fallback may suspend, too.
            Class<?> continuation = method.getParameterTypes()[types.length];
            found = found == null ? ReflectionUtils.findMethod(bean, name, with(types, continuation)) : found;
            foundMore = foundMore == null ? ReflectionUtils.findMethod(bean, name, with(more, continuation)) : foundMore;
        }
        return Optional.ofNullable(found != null ? new Fallback(found, false) : foundMore != null ? new Fallback(foundMore, true) : null);
    }

    private static <T> T[] with(T[] values, T last) {
        T[] all = Arrays.copyOf(values, values.length + 1);
        all[values.length] = last;
        return all;
    }

    private static IllegalStateException noFallback(String name, Method method) {
        return new IllegalStateException("@RateLimit: there is no fallback `" + name + "` with the parameters of " + method);
    }

    private static MethodInvocation clone(MethodInvocation call) {
        return ((ProxyMethodInvocation) call).invocableClone();
    }

    /** Asks without blocking; completes with the first refusal, or with none. */
    private static CompletableFuture<Optional<Refusal>> permitted(List<PermitCheck> checks, int place, Consumer<Decision> passed) {
        if (place == checks.size()) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        PermitCheck check = checks.get(place);
        return check.limiter.checkAsync(check.key, check.cost).thenCompose(decision -> {
            if (!decision.allowed()) {
                return CompletableFuture.completedFuture(Optional.of(new Refusal(check, decision)));
            }
            passed.accept(decision);
            if (decision.waitUs() == 0) {
                return permitted(checks, place + 1, passed);
            }
            return CompletableFuture.runAsync(() -> { }, CompletableFuture.delayedExecutor(decision.waitUs(), TimeUnit.MICROSECONDS))
                .thenCompose(waited -> permitted(checks, place + 1, passed));
        });
    }

    private static Object proceed(MethodInvocation call, Method method, Optional<Refusal> refusal) throws Throwable {
        return refusal.isPresent() ? refused(call, method, refusal.get()) : call.proceed();
    }

    private interface Body {
        Object run() throws Throwable;
    }

    private static CompletableFuture<Object> staged(Body body) {
        try {
            Object stage = body.run();
            return stage == null ? CompletableFuture.completedFuture(null)
                : ((CompletionStage<?>) stage).<Object>thenApply(value -> value).toCompletableFuture();
        } catch (Throwable e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private static Object refused(MethodInvocation call, Method method, Refusal refused) {
        Limit limit = refused.check.limit;
        RateLimitExceededException refusal = limit.answer.isOwn()
            ? new RateLimitExceededException(refused.decision, limit.answer.to(refused.decision)) : new RateLimitExceededException(refused.decision);
        if (limit.fallback.isEmpty()) {
            throw refusal;
        }
        Object bean = call.getThis();
        Fallback fallback = fallback(bean.getClass(), method, limit.fallback).orElseThrow(() -> noFallback(limit.fallback, method));
        Object[] arguments = Coroutines.written(method, call.getArguments());
        if (fallback.takesRefusal) {
            arguments = with(arguments, refusal);
        }
        if (Coroutines.isSuspending(fallback.method)) {
            return Coroutines.invoke(fallback.method, bean, arguments, call.getArguments());
        }
        ReflectionUtils.makeAccessible(fallback.method);
        return ReflectionUtils.invokeMethod(fallback.method, bean, arguments);
    }
}
