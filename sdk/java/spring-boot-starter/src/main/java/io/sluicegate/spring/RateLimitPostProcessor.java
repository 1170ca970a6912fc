package io.sluicegate.spring;

import io.sluicegate.Gate;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.AopUtils;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.util.ReflectionUtils;

/** Has methods with {@link RateLimit} checked before they go on; others stay as they are. */
final class RateLimitPostProcessor extends AbstractBeanFactoryAwareAdvisingPostProcessor implements SmartInitializingSingleton {
    private static final long serialVersionUID = 1;

    private transient BeanFactory beans;
    /** The policies that annotations name. */
    private final transient Set<String> policies = ConcurrentHashMap.newKeySet();

    RateLimitPostProcessor() {
        setProxyTargetClass(true);
        // What is refused begins no transaction.
        setBeforeExistingAdvisors(true);
    }

    @Override
    public void setBeanFactory(BeanFactory beans) {
        super.setBeanFactory(beans);
        this.beans = beans;
        ComposablePointcut pointcut = new ComposablePointcut(new AnnotationMatchingPointcut(null, RateLimit.class, true))
            .union((org.springframework.aop.Pointcut) new AnnotationMatchingPointcut(null, RateLimit.All.class, true));
        this.advisor = new DefaultPointcutAdvisor(pointcut, new RateLimitInterceptor(beans));
    }

    @Override
    public Object postProcessAfterInitialization(Object bean, String name) {
        Class<?> type = AopUtils.getTargetClass(bean);
        if (AnnotationUtils.isCandidateClass(type, List.of(RateLimit.class, RateLimit.All.class))) {
            ReflectionUtils.doWithMethods(type, method -> check(method, type), method -> !method.isBridge() && !method.isSynthetic());
        }
        return super.postProcessAfterInitialization(bean, name);
    }

    private void check(Method method, Class<?> type) {
        if (isOutOfReach(method)) {
            throw new IllegalStateException("@RateLimit does not limit a private, final or static method: " + method);
        }
        RateLimitInterceptor.refuseMistakes(method, type, beans);
        AnnotatedElementUtils.findMergedRepeatableAnnotations(method, RateLimit.class, RateLimit.All.class).forEach(limit -> policies.add(limit.policy()));
    }

    /** Makes a limiter of each policy, so that the gate counts it as used before the first call. */
    @Override
    public void afterSingletonsInstantiated() {
        if (!policies.isEmpty()) {
            beans.getBeanProvider(Gate.class).ifAvailable(gate -> policies.forEach(gate::policy));
        }
    }

    // A proxy cannot stand before these: they would go on without being limited.
    private static boolean isOutOfReach(Method method) {
        return (method.getModifiers() & (Modifier.PRIVATE | Modifier.FINAL | Modifier.STATIC)) != 0
            && (AnnotatedElementUtils.hasAnnotation(method, RateLimit.class) || AnnotatedElementUtils.hasAnnotation(method, RateLimit.All.class));
    }
}
