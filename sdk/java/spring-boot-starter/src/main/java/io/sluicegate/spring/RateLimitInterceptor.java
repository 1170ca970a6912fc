package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import io.sluicegate.RateLimitExceededException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.reactivestreams.Publisher;
import org.springframework.aop.ProxyMethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ReflectionUtils;

/** Asks the gate before a method with {@link RateLimit} goes on. */
final class RateLimitInterceptor implements MethodInterceptor {
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();
    private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

    private final BeanFactory beans;
    /** What the annotations of each method say; a program has so many methods and no more. */
    private final Map<Method, List<Limit>> limits = new ConcurrentHashMap<>();

    RateLimitInterceptor(BeanFactory beans) {
        this.beans = beans;
    }

    private record Limit(String policy, Expression key, Expression cost, String fallback) {}

    /** What one annotation asks of one call. */
    record Ask(Limiter limiter, String key, long cost, String fallback) {}

    /** What one of them was told. */
    record Refusal(Ask ask, Decision decision) {}

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), call.getThis().getClass());
        List<Ask> asks = asks(call, method);
        Class<?> returns = method.getReturnType();
        if (CompletionStage.class.isAssignableFrom(returns) && returns.isAssignableFrom(CompletableFuture.class)) {
            MethodInvocation later = clone(call);
            return permitted(asks, 0).thenCompose(refusal -> staged(() -> goOn(later, method, refusal)));
        }
        if (Publisher.class.isAssignableFrom(returns)) {
            // Each subscription is a call of its own.
            MethodInvocation each = clone(call);
            return ReactiveCalls.limited(returns, () -> permitted(asks, 0), refusal -> goOn(clone(each), method, refusal));
        }
        for (Ask ask : asks) {
            Decision said = ask.limiter.check(ask.key, ask.cost);
            if (!said.allowed()) {
                return refused(call, method, new Refusal(ask, said));
            }
            if (said.waitUs() > 0) {
                TimeUnit.MICROSECONDS.sleep(said.waitUs());
            }
        }
        return call.proceed();
    }

    private List<Ask> asks(MethodInvocation call, Method method) {
        EvaluationContext context = new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), NAMES);
        Gate gate = beans.getBean(Gate.class);
        Observer observer = beans.getBeanProvider(Observer.class).getIfUnique();
        return limits.computeIfAbsent(method, RateLimitInterceptor::limits).stream().map(limit -> {
            Object key = limit.key == null ? null : limit.key.getValue(context);
            Long cost = limit.cost.getValue(context, Long.class);
            Limiter limiter = gate.policy(limit.policy);
            return new Ask(observer == null ? limiter : limiter.observedBy(observer), key == null ? null : key.toString(),
                cost == null ? 0 : cost, limit.fallback);
        }).toList();
    }

    private static List<Limit> limits(Method method) {
        return AnnotatedElementUtils.findMergedRepeatableAnnotations(method, RateLimit.class, RateLimit.All.class).stream()
            .map(limit -> new Limit(limit.policy(), limit.key().isEmpty() ? null : PARSER.parseExpression(limit.key()),
                PARSER.parseExpression(limit.cost()), limit.fallback()))
            .toList();
    }

    private static MethodInvocation clone(MethodInvocation call) {
        return ((ProxyMethodInvocation) call).invocableClone();
    }

    /** Asks without blocking; completes with the first refusal, or with none. */
    private static CompletableFuture<Optional<Refusal>> permitted(List<Ask> asks, int place) {
        if (place == asks.size()) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        Ask ask = asks.get(place);
        return ask.limiter.checkAsync(ask.key, ask.cost).thenCompose(said -> {
            if (!said.allowed()) {
                return CompletableFuture.completedFuture(Optional.of(new Refusal(ask, said)));
            }
            if (said.waitUs() == 0) {
                return permitted(asks, place + 1);
            }
            return CompletableFuture.runAsync(() -> { }, CompletableFuture.delayedExecutor(said.waitUs(), TimeUnit.MICROSECONDS))
                .thenCompose(waited -> permitted(asks, place + 1));
        });
    }

    private static Object goOn(MethodInvocation call, Method method, Optional<Refusal> refusal) throws Throwable {
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
        Ask ask = refused.ask;
        RateLimitExceededException refusal = new RateLimitExceededException(refused.decision);
        if (ask.fallback.isEmpty()) {
            throw refusal;
        }
        Object bean = call.getThis();
        Object[] arguments = call.getArguments();
        Class<?>[] types = method.getParameterTypes();
        Method plain = ReflectionUtils.findMethod(bean.getClass(), ask.fallback, types);
        if (plain != null) {
            ReflectionUtils.makeAccessible(plain);
            return ReflectionUtils.invokeMethod(plain, bean, arguments);
        }
        Class<?>[] more = Arrays.copyOf(types, types.length + 1);
        more[types.length] = RateLimitExceededException.class;
        Method told = ReflectionUtils.findMethod(bean.getClass(), ask.fallback, more);
        if (told == null) {
            throw new IllegalStateException("there is no fallback `" + ask.fallback + "` with the parameters of " + method);
        }
        Object[] with = Arrays.copyOf(arguments, arguments.length + 1);
        with[arguments.length] = refusal;
        ReflectionUtils.makeAccessible(told);
        return ReflectionUtils.invokeMethod(told, bean, with);
    }
}
