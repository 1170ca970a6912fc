package io.sluicegate.spring;

import java.lang.reflect.Method;
import java.util.Arrays;
import kotlin.coroutines.Continuation;
import kotlin.coroutines.CoroutineContext;
import kotlinx.coroutines.Job;
import org.reactivestreams.Publisher;
import org.springframework.core.CoroutinesUtils;
import org.springframework.core.KotlinDetector;
import org.springframework.core.MethodParameter;
import org.springframework.util.ClassUtils;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Functions of Kotlin that suspend, or that return a {@code Flow}. Spring makes a publisher of a call that suspends, and the coroutine gets what
 * the publisher of the advice has: so these are limited like methods that return one.
 */
final class Coroutines {
    private static final String FLOW = "kotlinx.coroutines.flow.Flow";
    /** The libraries by which Spring turns coroutines into publishers. */
    private static final boolean ARE_SUPPORTED = ClassUtils.isPresent("kotlinx.coroutines.reactor.MonoKt", Coroutines.class.getClassLoader())
        && KotlinDetector.isKotlinReflectPresent();

    private Coroutines() {}

    /** Refuses a function of coroutines if the libraries for them are missing: it would hold its thread while somebody decides. */
    static void refuseUnsupported(String annotation, Method method) {
        if (!ARE_SUPPORTED && (isSuspending(method) || isFlow(method.getReturnType()))) {
            throw new IllegalStateException(annotation + " at " + method + ": a function that suspends, or returns a Flow, needs `kotlinx-coroutines-reactor`"
                + " and `kotlin-reflect` on the class path");
        }
    }

    static boolean isSuspending(Method method) {
        return KotlinDetector.isSuspendingFunction(method);
    }

    /** {@return whether a type is that of flows, for which Spring has an adapter} */
    static boolean isFlow(Class<?> type) {
        return type.getName().equals(FLOW);
    }

    /** {@return the publisher that is in place of a call that suspends} */
    static Class<?> publisherOf(Method method) {
        return isFlow(new MethodParameter(method, -1).getParameterType()) ? Flux.class : Mono.class;
    }

    /** {@return what a program wrote as parameters, or as their values} The compiler adds the continuation of a function that suspends. */
    static <T> T[] written(Method method, T[] each) {
        return isSuspending(method) ? Arrays.copyOf(each, each.length - 1) : each;
    }

    /** {@return the result of a call that suspends as a publisher} A fallback may have a plain value. */
    static Publisher<?> publisher(Object result) {
        return result instanceof Publisher<?> publisher ? publisher : Mono.justOrEmpty(result);
    }

    /** Calls a function that suspends in place of another, in the context of that one's coroutine. */
    static Publisher<?> invoke(Method method, Object bean, Object[] written, Object[] arguments) {
        return Calls.invoke(method, bean, written, arguments[arguments.length - 1]);
    }

    /** Apart, as its classes may not be there. */
    private static final class Calls {
        static Publisher<?> invoke(Method method, Object bean, Object[] written, Object continuation) {
            CoroutineContext context = ((Continuation<?>) continuation).getContext().minusKey(Job.Key);
            return CoroutinesUtils.invokeSuspendingFunction(context, method, bean, Arrays.copyOf(written, written.length + 1));
        }
    }
}
