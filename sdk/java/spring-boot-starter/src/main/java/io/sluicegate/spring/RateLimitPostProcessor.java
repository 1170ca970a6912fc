package io.sluicegate.spring;

import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.BeanFactory;

/** Has beans with {@link RateLimit} ask before their methods go on; others stay as they are. */
final class RateLimitPostProcessor extends AbstractBeanFactoryAwareAdvisingPostProcessor {
    private static final long serialVersionUID = 1;

    RateLimitPostProcessor() {
        setProxyTargetClass(true);
        // What is refused begins no transaction.
        setBeforeExistingAdvisors(true);
    }

    @Override
    public void setBeanFactory(BeanFactory beans) {
        super.setBeanFactory(beans);
        ComposablePointcut pointcut = new ComposablePointcut(new AnnotationMatchingPointcut(null, RateLimit.class, true))
            .union((org.springframework.aop.Pointcut) new AnnotationMatchingPointcut(null, RateLimit.All.class, true));
        this.advisor = new DefaultPointcutAdvisor(pointcut, new RateLimitInterceptor(beans));
    }
}
