package io.sluicegate.spring;

import io.sluicegate.internal.HeldPermits;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/** Calls whose result is a {@code CompletionStage}, and which hold permits until it completes. */
final class HeldStage {
    private HeldStage() {}

    /**
     * {@return a future of the result of a call} If it is cancelled before the call goes on, the call does not, and what is held or asked for is given
     * back; afterwards the stage of the call is cancelled.
     *
     * @param held the permits of the call
     * @param asked completes when it may go on, or is refused
     * @param onward the call, or what is in its place
     */
    static CompletableFuture<Object> of(HeldPermits held, CompletableFuture<Optional<RateLimitInterceptor.Refusal>> asked,
                                        Function<Optional<RateLimitInterceptor.Refusal>, CompletableFuture<?>> onward) {
        CompletableFuture<Object> result = new CompletableFuture<>();
        AtomicBoolean goesOn = new AtomicBoolean();
        asked.thenCompose(refusal -> {
            if (!goesOn.compareAndSet(false, true)) {
                throw new CancellationException();
            }
            CompletableFuture<?> stage = onward.apply(refusal);
            result.whenComplete((value, problem) -> stage.cancel(true));
            return stage.thenApply(value -> (Object) value);
        }).whenComplete((value, problem) -> held.closeAsync().thenRun(() -> {
            if (problem == null) {
                result.complete(value);
            } else {
                result.completeExceptionally(problem);
            }
        }));
        result.whenComplete((value, problem) -> {
            if (goesOn.compareAndSet(false, true)) {
                held.closeAsync();
            }
        });
        return result;
    }
}
