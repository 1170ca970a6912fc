package io.sluicegate.spring;

import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Mono;

/** Filters by configuration, and {@code @RateLimit} at a controller, in an application of WebFlux. */
class WebFluxFiltersTest extends FiltersContract {
    WebFluxFiltersTest() {
        super(Application.class, WebApplicationType.REACTIVE);
    }

    @RestController
    static class Hello {
        @GetMapping("/**")
        Mono<String> hello() {
            return Mono.just("hello");
        }

        @GetMapping("/undecided")
        @RateLimit(policy = "unknown")
        Mono<String> undecided() {
            throw new AssertionError("nobody let it pass");
        }

        @GetMapping("/limited")
        @RateLimit(policy = "tenant", key = "'limited'")
        Mono<String> limited() {
            return Mono.just("limited");
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {
        @Bean
        Hello hello() {
            return new Hello();
        }

        @Bean
        StarterTest.Notes notes() {
            return new StarterTest.Notes(new CopyOnWriteArrayList<>());
        }
    }
}
