package io.sluicegate.spring;

import io.sluicegate.Gate;
import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.aop.Pointcut;
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

/** Has methods with {@link RateLimit} or {@link ConcurrencyLimit} checked before they go on; others stay as they are. */
final class RateLimitPostProcessor extends AbstractBeanFactoryAwareAdvisingPostProcessor implements SmartInitializingSingleton {
    private static final long serialVersionUID = 1;

    /** A proxy cannot stand before these: they would go on without being limited. */
    private static final int OUT_OF_REACH = Modifier.PRIVATE | Modifier.FINAL | Modifier.STATIC;

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
        ComposablePointcut pointcut = null;
        for (Class<? extends Annotation> each : MethodLimit.ANNOTATIONS) {
            Pointcut with = new AnnotationMatchingPointcut(null, each, true);
            pointcut = pointcut == null ? new ComposablePointcut(with) : pointcut.union(with);
        }
        this.advisor = new DefaultPointcutAdvisor(pointcut, new RateLimitInterceptor(beans));
    }

    @Override
    public Object postProcessAfterInitialization(Object bean, String name) {
        Class<?> type = AopUtils.getTargetClass(bean);
        if (AnnotationUtils.isCandidateClass(type, MethodLimit.ANNOTATIONS)) {
            ReflectionUtils.doWithMethods(type, method -> check(method, type), method -> !method.isBridge() && !method.isSynthetic());
        }
        return super.postProcessAfterInitialization(bean, name);
    }

    private void check(Method method, Class<?> type) {
        Class<? extends Annotation> annotation = annotation(method);
        if (annotation == null) {
            return;
        }
        if ((method.getModifiers() & OUT_OF_REACH) != 0) {
            boolean holds = annotation == ConcurrencyLimit.class || annotation == ConcurrencyLimit.All.class;
            throw new IllegalStateException((holds ? "@ConcurrencyLimit" : "@RateLimit") + " does not limit a private, final or static method: " + method);
        }
        RateLimitInterceptor.refuseMistakes(method, type, beans);
        MethodLimit.of(method).forEach(limit -> policies.add(limit.policy()));
    }

    private static Class<? extends Annotation> annotation(Method method) {
        return MethodLimit.ANNOTATIONS.stream().filter(each -> AnnotatedElementUtils.hasAnnotation(method, each)).findFirst().orElse(null);
    }

    /** Makes a limiter of each policy, so that the gate counts it as used before the first call. */
    @Override
    public void afterSingletonsInstantiated() {
        if (!policies.isEmpty()) {
            beans.getBeanProvider(Gate.class).ifAvailable(gate -> policies.forEach(gate::policy));
        }
    }
}
