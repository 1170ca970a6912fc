package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.internal.HeldPermits;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;
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
        CompletableFuture<Optional<RateLimitInterceptor.Refusal>> check(Consumer<Decision> passed, HeldPermits held);
    }

    /** {@return what is in place of the result of a call} If it {@code holds} permits, each subscription gives back its own when it ends. */
    static Object limited(Class<?> type, boolean holds, Permitted permitted, Continuation onward) {
        if (Mono.class.isAssignableFrom(type)) {
            Function<HeldPermits, Mono<?>> mono = held -> checked(permitted, held).flatMap(refusal -> Mono.from((Publisher<?>) proceed(onward, refusal)));
            return holds ? Mono.usingWhen(Mono.fromSupplier(HeldPermits::new), mono, ReactiveCalls::close, (held, problem) -> close(held), ReactiveCalls::close)
                : mono.apply(new HeldPermits());
        }
        ReactiveAdapter adapter = ReactiveAdapterRegistry.getSharedInstance().getAdapter(type);
        Function<HeldPermits, Flux<?>> flux = held -> checked(permitted, held).flatMapMany(refusal -> {
            Object result = proceed(onward, refusal);
            // What is not a publisher, such as a Flow of Kotlin, has an adapter.
            return result instanceof Publisher<?> publisher ? publisher : adapter.toPublisher(result);
        });
        Flux<?> each = holds ? Flux.usingWhen(Mono.fromSupplier(HeldPermits::new), flux, ReactiveCalls::close, (held, problem) -> close(held), ReactiveCalls::close)
            : flux.apply(new HeldPermits());
        return adapter == null ? each : adapter.fromPublisher(each);
    }

    // What follows runs on a thread of Reactor, not on one of the limiter.
    private static Mono<Optional<RateLimitInterceptor.Refusal>> checked(Permitted permitted, HeldPermits held) {
        return Mono.deferContextual(context -> Mono.fromFuture(() -> permitted.check(ResponseFields.of(context), held))).publishOn(Schedulers.parallel());
    }

    private static Mono<Void> close(HeldPermits held) {
        return Mono.fromFuture(held::closeAsync).publishOn(Schedulers.parallel());
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
