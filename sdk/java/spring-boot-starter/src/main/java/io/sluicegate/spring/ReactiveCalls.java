package io.sluicegate.spring;

import io.sluicegate.Decision;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.reactivestreams.Publisher;
import org.springframework.core.ReactiveAdapter;
import org.springframework.core.ReactiveAdapterRegistry;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Calls whose result is a {@code Publisher}: asked for when somebody subscribes, without blocking. */
final class ReactiveCalls {
    private ReactiveCalls() {}

    /** The call itself, or what is in its place. */
    interface Onward {
        Object go(Optional<RateLimitInterceptor.Refusal> refusal) throws Throwable;
    }

    /** The checks before a call, of which each that passes is handed to what sets fields. */
    interface Permitted {
        CompletableFuture<Optional<RateLimitInterceptor.Refusal>> ask(Consumer<Decision> passed);
    }

    static Object limited(Class<?> type, Permitted permitted, Onward onward) {
        // What follows runs on a thread of Reactor, not on one of the limiter.
        Mono<Optional<RateLimitInterceptor.Refusal>> asked =
            Mono.deferContextual(context -> Mono.fromFuture(() -> permitted.ask(ResponseFields.of(context)))).publishOn(Schedulers.parallel());
        if (Mono.class.isAssignableFrom(type)) {
            return asked.flatMap(refusal -> (Mono<?>) went(onward, refusal));
        }
        ReactiveAdapter adapter = ReactiveAdapterRegistry.getSharedInstance().getAdapter(type);
        Flux<?> each = asked.flatMapMany(refusal -> (Publisher<?>) went(onward, refusal));
        return adapter == null ? each : adapter.fromPublisher(each);
    }

    private static Object went(Onward onward, Optional<RateLimitInterceptor.Refusal> refusal) {
        try {
            return onward.go(refusal);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            return Mono.error(e);
        }
    }
}
