package io.sluicegate.spring;

import java.security.Principal;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.Ordered;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** Filters by configuration, and {@code @RateLimit} at a controller, in an application of WebFlux. */
class WebFluxFiltersTest extends FiltersContract {
    WebFluxFiltersTest() {
        super(Application.class, WebApplicationType.REACTIVE);
    }

    @Override
    protected String admin() {
        return "#request.headers.getFirst('X-Admin') != null";
    }

    static class Tenants {
        public String of(ServerHttpRequest request) {
            return request.getHeaders().getFirst("X-User");
        }
    }

    /** The user is in a field, as if Spring Security had asked. */
    static class Login implements WebFilter, Ordered {
        @Override
        public int getOrder() {
            return -100;
        }

        @Override
        public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
            String user = exchange.getRequest().getHeaders().getFirst("X-User");
            return chain.filter(user == null ? exchange : exchange.mutate().principal(Mono.just((Principal) () -> user)).build());
        }
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

        @GetMapping("/keyless")
        @RateLimit(policy = "tenant", key = "null")
        Mono<String> keyless() {
            throw new AssertionError("nobody let it pass");
        }

        @GetMapping("/limited")
        @RateLimit(policy = "tenant", key = "'limited'")
        Mono<String> limited() {
            return Mono.just("limited");
        }

        @GetMapping("/answered")
        @RateLimit(policy = "tenant", key = "'answered'", status = 420, body = "slow down")
        Mono<String> answered() {
            return Mono.just("answered");
        }

        @GetMapping("/forbidden")
        @RateLimit(policy = "tenant", key = "'forbidden'", status = 403)
        Mono<String> forbidden() {
            return Mono.just("forbidden");
        }

        @GetMapping("/of-the-policy")
        @RateLimit(policy = "degrade", key = "'own'", status = 420, body = "slow down")
        Mono<String> ofThePolicy() {
            return Mono.just("passed");
        }

        @GetMapping("/nobody")
        @RateLimit(policy = "deny", key = "'own'", status = 420, body = "slow down")
        Mono<String> nobody() {
            throw new AssertionError("nobody let it pass");
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
        Tenants tenants() {
            return new Tenants();
        }

        @Bean
        Login login() {
            return new Login();
        }

        @Bean
        StarterTest.Notes notes() {
            return new StarterTest.Notes(new CopyOnWriteArrayList<>());
        }
    }
}
