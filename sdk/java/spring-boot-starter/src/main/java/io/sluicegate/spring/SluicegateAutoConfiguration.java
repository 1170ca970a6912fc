package io.sluicegate.spring;

import io.micrometer.core.instrument.MeterRegistry;
import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import io.sluicegate.Observer;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.http.HttpGate;
import io.sluicegate.lettuce.LettuceClusterPort;
import io.sluicegate.lettuce.LettucePort;
import io.sluicegate.micrometer.DecisionMeters;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.ResponseEntity;

/** A gate by {@code sluicegate.*}, unless the application has a bean of its own, and what {@link RateLimit} needs. */
@AutoConfiguration(afterName = {
    // In Boot 3.5 and in Boot 4.
    "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration"
})
@EnableConfigurationProperties(SluicegateProperties.class)
public class SluicegateAutoConfiguration {
    /** Made by Spring. */
    public SluicegateAutoConfiguration() {
        // It has no state.
    }

    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    Gate sluicegateGate(SluicegateProperties says) {
        if (says.mode() == SluicegateProperties.Mode.REMOTE) {
            HttpGate.Builder remote = HttpGate.remote(says.server().url()).timeout(says.server().timeout());
            if (says.server().token() != null) {
                remote.token(says.server().token());
            }
            return (says.app() == null ? remote : remote.app(says.app())).build();
        }
        DirectGate.Builder direct = Sluicegate.direct(port(says.redis())).deadline(says.deadline());
        if (says.nodes() != null) {
            direct.nodes(says.nodes());
        }
        return (says.app() == null ? direct : direct.app(says.app())).build();
    }

    private static RedisPort port(SluicegateProperties.Redis says) {
        return says.cluster().isEmpty() ? LettucePort.connect(says.url()) : LettuceClusterPort.connect(says.cluster().toArray(String[]::new));
    }

    @Bean
    static RateLimitPostProcessor sluicegatePostProcessor() {
        return new RateLimitPostProcessor();
    }

    /** Times what {@link RateLimit} and the filters ask. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({MeterRegistry.class, DecisionMeters.class})
    static class Meters {
        @Bean
        @ConditionalOnBean(MeterRegistry.class)
        @ConditionalOnMissingBean
        DecisionMeters sluicegateMeters(MeterRegistry registry) {
            return new DecisionMeters(registry);
        }
    }

    /** Answers what is refused. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication
    @ConditionalOnClass(ResponseEntity.class)
    static class Web {
        @Bean
        @ConditionalOnMissingBean
        RateLimitAdvice sluicegateAdvice() {
            return new RateLimitAdvice();
        }
    }

    /** Limits requests to servlets. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
    @ConditionalOnProperty("sluicegate.filters[0].policy")
    static class Servlets {
        @Bean
        ServletFilters sluicegateFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties says) {
            return new ServletFilters(gate, observers.orderedStream().toArray(Observer[]::new), says.filters());
        }
    }

    /** Limits requests to WebFlux. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
    @ConditionalOnProperty("sluicegate.filters[0].policy")
    static class WebFlux {
        @Bean
        WebFluxFilters sluicegateFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties says) {
            return new WebFluxFilters(gate, observers.orderedStream().toArray(Observer[]::new), says.filters());
        }
    }

    /** Says in Boot 3.5 whether Redis answers. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnProperty(name = "management.health.sluicegate.enabled", matchIfMissing = true)
    static class Actuator {
        @Bean
        org.springframework.boot.actuate.health.HealthIndicator sluicegateHealthIndicator(Gate gate, SluicegateProperties says) {
            return () -> new org.springframework.boot.actuate.health.Health.Builder().status(status(gate, says)).withDetails(details(gate)).build();
        }
    }

    /** Says in Boot 4 whether Redis answers. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.health.contributor.HealthIndicator")
    @ConditionalOnProperty(name = "management.health.sluicegate.enabled", matchIfMissing = true)
    static class Contributed {
        @Bean
        org.springframework.boot.health.contributor.HealthIndicator sluicegateHealthIndicator(Gate gate, SluicegateProperties says) {
            return () -> new org.springframework.boot.health.contributor.Health.Builder().status(status(gate, says)).withDetails(details(gate)).build();
        }
    }

    private static String status(Gate gate, SluicegateProperties says) {
        return gate instanceof DirectGate direct && direct.isDegraded() ? says.health().degradedStatus() : "UP";
    }

    private static Map<String, Object> details(Gate gate) {
        Map<String, Object> details = new LinkedHashMap<>();
        if (gate instanceof DirectGate direct) {
            details.put("redis", direct.isDegraded() ? "does not answer" : "answers");
        }
        if (gate instanceof DirectGate direct && direct.isDegraded()) {
            details.put("decisions", "by on_store_failure");
        }
        return details;
    }
}
