package io.sluicegate.spring;

import io.micrometer.core.instrument.MeterRegistry;
import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import io.sluicegate.GateHealth;
import io.sluicegate.Observer;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.http.HttpGate;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.json.Json;
import io.sluicegate.lettuce.LettuceClusterPort;
import io.sluicegate.lettuce.LettucePort;
import io.sluicegate.micrometer.DecisionMeters;
import java.util.Map;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.http.ResponseEntity;
import org.springframework.web.filter.reactive.ServerWebExchangeContextFilter;

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
    Gate sluicegateGate(SluicegateProperties properties) {
        try {
            return properties.mode() == SluicegateProperties.Mode.REMOTE ? remote(properties) : direct(properties);
        } catch (SluicegateException e) {
            throw new IllegalStateException("sluicegate." + e.getMessage());
        }
    }

    private static Gate remote(SluicegateProperties properties) {
        HttpGate.Builder remote = HttpGate.remote(properties.server().url()).timeout(properties.server().timeout()).warmUp(properties.warmUp());
        if (properties.server().token() != null) {
            remote.token(properties.server().token());
        }
        return (properties.app() == null ? remote : remote.app(properties.app())).build();
    }

    private static Gate direct(SluicegateProperties properties) {
        DirectGate.Builder direct = Sluicegate.direct(port(properties.redis())).deadline(properties.deadline()).warmUp(properties.warmUp());
        if (properties.nodes() != null) {
            direct.nodes(properties.nodes());
        }
        return (properties.app() == null ? direct : direct.app(properties.app())).build();
    }

    private static RedisPort port(SluicegateProperties.Redis properties) {
        boolean isCluster = !properties.cluster().isEmpty();
        try {
            return isCluster ? LettuceClusterPort.connect(properties.cluster().toArray(String[]::new)) : LettucePort.connect(properties.url());
        } catch (IllegalArgumentException e) {
            // The cause is left out: it may say the password.
            throw new IllegalStateException((isCluster ? "sluicegate.redis.cluster: `" : "sluicegate.redis.url: `")
                + SluicegateProperties.masked(isCluster ? String.join(",", properties.cluster()) : properties.url()) + "` is not an address of Redis: "
                + SluicegateProperties.masked(String.valueOf(e.getMessage())));
        }
    }

    /** Looks for the policies without which the application does not start. */
    @Bean
    SmartInitializingSingleton sluicegateRequiredPolicies(ObjectProvider<Gate> gate, SluicegateProperties properties) {
        return () -> {
            if (properties.requiredPolicies().isEmpty()) {
                return;
            }
            try {
                gate.getObject().require(properties.requiredPolicies());
            } catch (SluicegateException e) {
                throw new IllegalStateException("sluicegate.required-policies: " + e.getMessage(), e);
            }
        };
    }

    @Bean
    static RateLimitPostProcessor sluicegatePostProcessor() {
        return new RateLimitPostProcessor();
    }

    /** Times the checks of {@link RateLimit} and the filters. */
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
        ServletFilters sluicegateFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties properties, BeanFactory beans,
                                         Environment environment) {
            ForwardedHeaders.warn(environment, properties.filters());
            return new ServletFilters(gate, observers.orderedStream().toArray(Observer[]::new), properties.filters(), new Expressions(beans), false);
        }

        @Bean
        ServletFilters sluicegatePrincipalFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties properties, BeanFactory beans) {
            return new ServletFilters(gate, observers.orderedStream().toArray(Observer[]::new), properties.filters(), new Expressions(beans), true);
        }
    }

    /** Limits requests to WebFlux. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
    @ConditionalOnProperty("sluicegate.filters[0].policy")
    static class WebFlux {
        @Bean
        WebFluxFilters sluicegateFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties properties, BeanFactory beans,
                                         Environment environment) {
            ForwardedHeaders.warn(environment, properties.filters());
            return new WebFluxFilters(gate, observers.orderedStream().toArray(Observer[]::new), properties.filters(), new Expressions(beans), false);
        }

        @Bean
        WebFluxFilters sluicegatePrincipalFilters(Gate gate, ObjectProvider<Observer> observers, SluicegateProperties properties, BeanFactory beans) {
            return new WebFluxFilters(gate, observers.orderedStream().toArray(Observer[]::new), properties.filters(), new Expressions(beans), true);
        }
    }

    /** Lets methods that return a {@code Publisher} find the answer on which their fields are set. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
    static class Exchanges {
        @Bean
        @ConditionalOnMissingBean
        ServerWebExchangeContextFilter sluicegateExchanges() {
            return new ServerWebExchangeContextFilter();
        }
    }

    /** Says in Boot 3.5 whether Redis answers. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnProperty(name = "management.health.sluicegate.enabled", matchIfMissing = true)
    static class Actuator {
        @Bean
        org.springframework.boot.actuate.health.HealthIndicator sluicegateHealthIndicator(Gate gate, SluicegateProperties properties) {
            return () -> {
                GateHealth health = gate.health();
                return new org.springframework.boot.actuate.health.Health.Builder().status(status(health, properties)).withDetails(details(gate, health)).build();
            };
        }
    }

    /** Says in Boot 4 whether Redis answers. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.health.contributor.HealthIndicator")
    @ConditionalOnProperty(name = "management.health.sluicegate.enabled", matchIfMissing = true)
    static class Contributed {
        @Bean
        org.springframework.boot.health.contributor.HealthIndicator sluicegateHealthIndicator(Gate gate, SluicegateProperties properties) {
            return () -> {
                GateHealth health = gate.health();
                return new org.springframework.boot.health.contributor.Health.Builder().status(status(health, properties)).withDetails(details(gate, health)).build();
            };
        }
    }

    private static String status(GateHealth health, SluicegateProperties properties) {
        return switch (health.state()) {
            case UP -> "UP";
            case DEGRADED -> properties.health().degradedStatus();
            case DOWN -> properties.health().downStatus();
        };
    }

    private static Map<String, Object> details(Gate gate, GateHealth health) {
        if (health.address().isEmpty()) {
            return Map.of();
        }
        String answer = health.state() == GateHealth.State.UP ? "answers"
            : Texts.READ_BEFORE.equals(health.decisions()) ? "decides by policies read before" : "does not decide";
        return Json.object(gate instanceof HttpGate ? "server" : "redis", answer, "address", health.address(), "cause", health.cause(),
            "decisions", health.decisions());
    }
}
