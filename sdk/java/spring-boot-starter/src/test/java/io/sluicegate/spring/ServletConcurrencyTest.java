package io.sluicegate.spring;

import io.sluicegate.testing.ConcurrencyContract;
import io.sluicegate.testing.ConcurrencyContract.Work;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Filters with {@code concurrency=true}, and {@code @ConcurrencyLimit} at a controller, in an application of servlets. */
class ServletConcurrencyTest extends ConcurrencyFiltersContract {
    ServletConcurrencyTest() {
        super(Application.class, WebApplicationType.SERVLET);
    }

    @RestController
    static class Works {
        private final Work work;

        Works(Work work) {
            this.work = work;
        }

        @GetMapping("/*/hold")
        String hold() {
            return work.begin().join();
        }

        @GetMapping("/*/later")
        CompletableFuture<String> later() {
            return work.begin();
        }

        @GetMapping("/*/fail")
        String fail() {
            throw new IllegalStateException("as the test asks");
        }

        @GetMapping("/*/stream")
        void stream(HttpServletResponse response) throws IOException {
            ConcurrencyContract.writeWithoutEnd(response.getOutputStream());
        }

        @GetMapping("/*/hello")
        String hello() {
            return "hello";
        }

        @GetMapping("/method")
        @ConcurrencyLimit(policy = "pool", key = "'method'")
        public String method() {
            return work.begin().join();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {
        @Bean
        Works works(Work work) {
            return new Works(work);
        }
    }
}
