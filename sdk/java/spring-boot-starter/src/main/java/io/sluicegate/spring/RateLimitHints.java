package io.sluicegate.spring;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.springframework.aot.hint.ExecutableMode;
import org.springframework.aot.hint.RuntimeHints;
import org.springframework.aot.hint.RuntimeHintsRegistrar;
import org.springframework.beans.factory.aot.BeanRegistrationAotContribution;
import org.springframework.beans.factory.aot.BeanRegistrationAotProcessor;
import org.springframework.beans.factory.support.RegisteredBean;
import org.springframework.util.ReflectionUtils;

/** The needs of a native image beside what Spring finds: the script for Redis, and the methods that {@link RateLimit} and {@link ConcurrencyLimit} name as fallbacks. */
final class RateLimitHints implements RuntimeHintsRegistrar, BeanRegistrationAotProcessor {
    static final String SCRIPT = "io/sluicegate/decide.lua";

    @Override
    public void registerHints(RuntimeHints hints, ClassLoader loader) {
        hints.resources().registerPattern(SCRIPT);
    }

    @Override
    public BeanRegistrationAotContribution processAheadOfTime(RegisteredBean bean) {
        List<Method> fallbacks = fallbacks(bean.getBeanClass());
        return fallbacks.isEmpty() ? null : (context, code) ->
            fallbacks.forEach(each -> context.getRuntimeHints().reflection().registerMethod(each, ExecutableMode.INVOKE));
    }

    /** {@return the methods of a bean that answer in place of others} */
    static List<Method> fallbacks(Class<?> bean) {
        List<Method> all = new ArrayList<>();
        ReflectionUtils.doWithMethods(bean, method -> {
            for (MethodLimit limit : MethodLimit.of(method)) {
                RateLimitInterceptor.fallback(bean, method, limit.fallback()).ifPresent(found -> all.add(found.method()));
            }
        }, method -> !method.isBridge() && !method.isSynthetic());
        return all;
    }
}
