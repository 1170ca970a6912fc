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

/** Calls whose result is a {@code Publisher}: checked when somebody subscribes, without blocking. */
final class ReactiveCalls {
    private ReactiveCalls() {}

    /** The call itself, or what is in its place. */
    interface Continuation {
        Object go(Optional<RateLimitInterceptor.Refusal> refusal) throws Throwable;
    }

    /** The checks before a call, of which each that passes is handed to what sets fields. */
    interface Permitted {
        CompletableFuture<Optional<RateLimitInterceptor.Refusal>> check(Consumer<Decision> passed);
    }

    static Object limited(Class<?> type, Permitted permitted, Continuation onward) {
        // What follows runs on a thread of Reactor, not on one of the limiter.
        Mono<Optional<RateLimitInterceptor.Refusal>> checked =
            Mono.deferContextual(context -> Mono.fromFuture(() -> permitted.check(ResponseFields.of(context)))).publishOn(Schedulers.parallel());
        if (Mono.class.isAssignableFrom(type)) {
            return checked.flatMap(refusal -> Mono.from((Publisher<?>) proceed(onward, refusal)));
        }
        ReactiveAdapter adapter = ReactiveAdapterRegistry.getSharedInstance().getAdapter(type);
        Flux<?> each = checked.flatMapMany(refusal -> {
            Object result = proceed(onward, refusal);
            // What is not a publisher, such as a Flow of Kotlin, has an adapter.
            return result instanceof Publisher<?> publisher ? publisher : adapter.toPublisher(result);
        });
        return adapter == null ? each : adapter.fromPublisher(each);
    }

    private static Object proceed(Continuation onward, Optional<RateLimitInterceptor.Refusal> refusal) {
        try {
            return onward.go(refusal);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            return Mono.error(e);
        }
    }
}
