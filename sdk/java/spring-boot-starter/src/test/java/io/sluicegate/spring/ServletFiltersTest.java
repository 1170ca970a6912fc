package io.sluicegate.spring;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.io.IOException;
import java.security.Principal;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.Ordered;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Filters by configuration, and {@code @RateLimit} at a controller, in an application of servlets. */
class ServletFiltersTest extends FiltersContract {
    ServletFiltersTest() {
        super(Application.class, WebApplicationType.SERVLET);
    }

    @Override
    protected String admin() {
        return "#request.getHeader('X-Admin') != null";
    }

    static class Tenants {
        public String of(HttpServletRequest request) {
            return request.getHeader("X-User");
        }
    }

    /** The user is in a field, as if Spring Security had asked. */
    static class Login implements Filter, Ordered {
        @Override
        public int getOrder() {
            return -100;
        }

        @Override
        public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
            HttpServletRequest httpRequest = (HttpServletRequest) request;
            String user = httpRequest.getHeader("X-User");
            chain.doFilter(new HttpServletRequestWrapper(httpRequest) {
                @Override
                public Principal getUserPrincipal() {
                    return user == null ? null : () -> user;
                }
            }, response);
        }
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

        @GetMapping("/keyless")
        @RateLimit(policy = "tenant", key = "null")
        String keyless() {
            throw new AssertionError("nobody let it pass");
        }

        @GetMapping("/limited")
        @RateLimit(policy = "tenant", key = "'limited'")
        String limited() {
            return "limited";
        }

        @GetMapping("/answered")
        @RateLimit(policy = "tenant", key = "'answered'", status = 420, body = "slow down")
        String answered() {
            return "answered";
        }

        @GetMapping("/forbidden")
        @RateLimit(policy = "tenant", key = "'forbidden'", status = 403)
        String forbidden() {
            return "forbidden";
        }

        @GetMapping("/of-the-policy")
        @RateLimit(policy = "degrade", key = "'own'", status = 420, body = "slow down")
        String ofThePolicy() {
            return "passed";
        }

        @GetMapping("/nobody")
        @RateLimit(policy = "deny", key = "'own'", status = 420, body = "slow down")
        String nobody() {
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
