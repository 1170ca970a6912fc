package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.internal.HeldPermits;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
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
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.SpelNode;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.util.ReflectionUtils;

/** Asks the gate before a method with {@link RateLimit} or {@link ConcurrencyLimit} goes on. */
final class RateLimitInterceptor implements MethodInterceptor {
    private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

    private final BeanFactory beans;
    private final BeanFactoryResolver resolver;
    /** The annotations of each method, parsed; a program has so many methods and no more. */
    private final Map<Method, List<MethodLimit>> limits = new ConcurrentHashMap<>();

    RateLimitInterceptor(BeanFactory beans) {
        this.beans = beans;
        this.resolver = new BeanFactoryResolver(beans);
    }

    /** The check of one annotation before a call. */
    record PermitCheck(Limiter limiter, String key, long cost, MethodLimit limit) {
        Decision ask(HeldPermits held) {
            return limit.ask(limiter, key, cost, held);
        }

        CompletableFuture<Decision> askAsync(HeldPermits held) {
            return limit.askAsync(limiter, key, cost, held);
        }
    }

    /** A limiter refused a call of one annotation. */
    record Refusal(PermitCheck check, Decision decision) {}

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), call.getThis().getClass());
        List<PermitCheck> checks = checksOf(call, method);
        boolean holds = checks.stream().anyMatch(check -> check.limit.holds());
        Class<?> returns = method.getReturnType();
        if (CompletionStage.class.isAssignableFrom(returns) && returns.isAssignableFrom(CompletableFuture.class)) {
            MethodInvocation later = clone(call);
            HeldPermits held = new HeldPermits();
            CompletableFuture<Optional<Refusal>> asked = permitted(checks, 0, ResponseFields.ofThread(), held);
            return holds ? HeldStage.of(held, asked, refusal -> staged(() -> proceed(later, method, refusal)))
                : asked.thenCompose(refusal -> staged(() -> proceed(later, method, refusal)).<Object>thenApply(value -> value));
        }
        if (Coroutines.isSuspending(method)) {
            MethodInvocation later = clone(call);
            Consumer<Decision> passedHere = ResponseFields.ofThread();
            return ReactiveCalls.limited(Coroutines.publisherOf(method), holds, (passed, held) -> permitted(checks, 0, passedHere.andThen(passed), held),
                refusal -> Coroutines.publisher(proceed(clone(later), method, refusal)));
        }
        if (Publisher.class.isAssignableFrom(returns) || Coroutines.isFlow(returns)) {
            // Each subscription is a call of its own.
            MethodInvocation each = clone(call);
            return ReactiveCalls.limited(returns, holds, (passed, held) -> permitted(checks, 0, passed, held), refusal -> proceed(clone(each), method, refusal));
        }
        return invokeNow(call, method, checks);
    }

    private static Object invokeNow(MethodInvocation call, Method method, List<PermitCheck> checks) throws Throwable {
        Consumer<Decision> passed = ResponseFields.ofThread();
        HeldPermits held = new HeldPermits();
        try {
            for (PermitCheck check : checks) {
                Decision decision = check.ask(held);
                if (!decision.allowed()) {
                    held.close();
                    return refused(call, method, new Refusal(check, decision));
                }
                passed.accept(decision);
                decision.sleep();
            }
            return call.proceed();
        } finally {
            held.close();
        }
    }

    private List<PermitCheck> checksOf(MethodInvocation call, Method method) {
        MethodBasedEvaluationContext context = new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), NAMES);
        context.setBeanResolver(resolver);
        Gate gate = beans.getBean(Gate.class);
        Observer[] observers = beans.getBeanProvider(Observer.class).orderedStream().toArray(Observer[]::new);
        return limits.computeIfAbsent(method, MethodLimit::of).stream().filter(limit -> isAsked(limit, context)).map(limit -> {
            Long cost = limit.cost().getValue(context, Long.class);
            Limiter limiter = observers.length == 0 ? gate.policy(limit.policy()) : gate.policy(limit.policy()).observedBy(observers);
            if (limit.key() == null) {
                return new PermitCheck(limiter.shared(), "", cost == null ? 0 : cost, limit);
            }
            Object key = limit.key().getValue(context);
            // A key that is missing is empty, which the limiter refuses.
            return new PermitCheck(limit.shared() ? limiter.shared() : limiter, key == null ? "" : key.toString(), cost == null ? 0 : cost, limit);
        }).toList();
    }

    private static boolean isAsked(MethodLimit limit, EvaluationContext context) {
        return limit.unless() == null || !Boolean.TRUE.equals(limit.unless().getValue(context, Boolean.class));
    }

    /** Finds mistakes in the annotations of a method of a bean, before the first call does. */
    static void refuseMistakes(Method method, Class<?> bean, BeanFactory beans) {
        for (MethodLimit limit : MethodLimit.of(method)) {
            Coroutines.refuseUnsupported(limit.annotation(), method);
            Set<String> variables = variables(method);
            for (Expression expression : limit.expressions()) {
                SpelNode node = ((SpelExpression) expression).getAST();
                String name = Expressions.unknownName(node, variables);
                if (name != null) {
                    throw new IllegalStateException(limit.annotation() + ": `" + name + "` is no parameter of " + method
                        + "; without the compiler option -parameters they are #a0, #a1, ...");
                }
                String unknown = Expressions.unknownBean(node, beans);
                if (unknown != null) {
                    throw new IllegalStateException(limit.annotation() + ": `" + expression.getExpressionString() + "` at " + method
                        + ": there is no bean `" + unknown + "`");
                }
            }
            String mistake = limit.answer().mistake("contentType");
            if (mistake != null) {
                throw new IllegalStateException(limit.annotation() + " at " + method + ": " + mistake);
            }
            if (!limit.fallback().isEmpty() && fallback(bean, method, limit.fallback()).isEmpty()) {
                throw noFallback(limit, method);
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

    private static IllegalStateException noFallback(MethodLimit limit, Method method) {
        return new IllegalStateException(limit.annotation() + ": there is no fallback `" + limit.fallback() + "` with the parameters of " + method);
    }

    private static MethodInvocation clone(MethodInvocation call) {
        return ((ProxyMethodInvocation) call).invocableClone();
    }

    /** Asks without blocking; completes with the first refusal, for which nothing is held any more, or with none. */
    private static CompletableFuture<Optional<Refusal>> permitted(List<PermitCheck> checks, int place, Consumer<Decision> passed, HeldPermits held) {
        if (place == checks.size()) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        PermitCheck check = checks.get(place);
        return check.askAsync(held).thenCompose(decision -> {
            if (!decision.allowed()) {
                return held.closeAsync().thenApply(closed -> Optional.of(new Refusal(check, decision)));
            }
            passed.accept(decision);
            if (decision.waitUs() == 0) {
                return permitted(checks, place + 1, passed, held);
            }
            return CompletableFuture.runAsync(() -> { }, CompletableFuture.delayedExecutor(decision.waitUs(), TimeUnit.MICROSECONDS))
                .thenCompose(waited -> permitted(checks, place + 1, passed, held));
        });
    }

    private static Object proceed(MethodInvocation call, Method method, Optional<Refusal> refusal) throws Throwable {
        return refusal.isPresent() ? refused(call, method, refusal.get()) : call.proceed();
    }

    private interface Body {
        Object run() throws Throwable;
    }

    /** {@return the stage that a method returns, as a future; if it is one, that one} */
    private static CompletableFuture<?> staged(Body body) {
        try {
            Object stage = body.run();
            return stage == null ? CompletableFuture.completedFuture(null) : ((CompletionStage<?>) stage).toCompletableFuture();
        } catch (Throwable e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    private static Object refused(MethodInvocation call, Method method, Refusal refused) {
        MethodLimit limit = refused.check.limit;
        RateLimitExceededException refusal = limit.answer().isOwn()
            ? new RateLimitExceededException(refused.decision, limit.answer().to(refused.decision)) : new RateLimitExceededException(refused.decision);
        if (limit.fallback().isEmpty()) {
            throw refusal;
        }
        Object bean = call.getThis();
        Fallback fallback = fallback(bean.getClass(), method, limit.fallback()).orElseThrow(() -> noFallback(limit, method));
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
