package io.sluicegate.spring;

import io.sluicegate.testing.ConcurrencyContract.Work;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Filters with {@code concurrency=true}, and {@code @ConcurrencyLimit} at a controller, in an application of WebFlux. */
class WebFluxConcurrencyTest extends ConcurrencyFiltersContract {
    WebFluxConcurrencyTest() {
        super(Application.class, WebApplicationType.REACTIVE);
    }

    @RestController
    static class Works {
        private final Work work;

        Works(Work work) {
            this.work = work;
        }

        @GetMapping({"/*/hold", "/*/later"})
        Mono<String> later() {
            return Mono.fromFuture(work::begin);
        }

        @GetMapping("/*/fail")
        Mono<String> fail() {
            return Mono.error(new IllegalStateException("as the test asks"));
        }

        @GetMapping("/*/stream")
        Mono<Void> stream(ServerHttpResponse response) {
            return response.writeAndFlushWith(Flux.generate(sink -> sink.next(1)).map(each -> Mono.just(response.bufferFactory().wrap(new byte[8192]))));
        }

        @GetMapping("/*/hello")
        Mono<String> hello() {
            return Mono.just("hello");
        }

        @GetMapping("/method")
        @ConcurrencyLimit(policy = "pool", key = "'method'")
        public Mono<String> method() {
            return Mono.fromFuture(work::begin);
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
