package io.sluicegate.spring;

import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Filters by configuration, and {@code @RateLimit} at a controller, in an application of servlets. */
class ServletFiltersTest extends FiltersContract {
    ServletFiltersTest() {
        super(Application.class, WebApplicationType.SERVLET);
    }

    @RestController
    static class Hello {
        @GetMapping("/**")
        String hello() {
            return "hello";
        }

        @GetMapping("/undecided")
        @RateLimit(policy = "unknown")
        String undecided() {
            throw new AssertionError("nobody let it pass");
        }

        @GetMapping("/limited")
        @RateLimit(policy = "tenant", key = "'limited'")
        String limited() {
            return "limited";
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
