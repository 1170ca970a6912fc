package io.sluicegate.internal.engine;

import io.sluicegate.RedisPort.Failure;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The next action of a call: it sends a command, pauses, or is done. So a call is written once, and {@link RedisStore} runs it either on
 * the thread of its caller, which blocks, or on the futures of a port. A check of a key that owes nothing is a {@link Send} and then
 * {@link Done}.
 */
sealed interface Step<T> {
    /** An undo for a step without effects. */
    Runnable NO_UNDO = () -> { };

    /** The call is done, and this is its result. */
    record Done<T>(T value) implements Step<T> {}

    /**
     * Sends a command.
     *
     * @param untilNanos when the reply has to be there
     * @param then takes the reply, or the failure, of which the other is null
     * @param abandoned runs instead of {@code then} if the caller gives up
     */
    record Send<T>(long untilNanos, byte[][] command, BiFunction<Object, Failure, Step<T>> then, Runnable abandoned) implements Step<T> {}

    /**
     * Waits for a time, or goes on at once if it is 0.
     *
     * @param abandoned runs instead of {@code then} if the caller gives up
     */
    record Pause<T>(long us, Supplier<Step<T>> then, Runnable abandoned) implements Step<T> {}

    /** {@return the end of a call} */
    static <T> Step<T> done(T value) {
        return new Done<>(value);
    }

    /** {@return a pause, and then another step} */
    static <T> Step<T> after(long us, Supplier<Step<T>> then) {
        return new Pause<>(us, then, NO_UNDO);
    }

    /** {@return this step, and then another one by its result} */
    default <R> Step<R> then(Function<? super T, Step<R>> next) {
        if (this instanceof Done<T> done) {
            return next.apply(done.value);
        }
        if (this instanceof Send<T> send) {
            return new Send<>(send.untilNanos, send.command, (reply, failure) -> send.then.apply(reply, failure).then(next), send.abandoned);
        }
        Pause<T> pause = (Pause<T>) this;
        return new Pause<>(pause.us, () -> pause.then.get().then(next), pause.abandoned);
    }

    /** {@return this step with a function of its result} */
    default <R> Step<R> map(Function<? super T, R> function) {
        return then(value -> done(function.apply(value)));
    }

    /** {@return this step; if the call ends before the step is done, as its caller gives up or something is thrown, {@code undo} runs} */
    default Step<T> ifAbandoned(Runnable undo) {
        if (this instanceof Send<T> send) {
            return new Send<>(send.untilNanos, send.command, (reply, failure) -> guarded(() -> send.then.apply(reply, failure), undo),
                both(send.abandoned, undo));
        }
        return this instanceof Pause<T> pause ? new Pause<>(pause.us, () -> guarded(pause.then, undo), both(pause.abandoned, undo)) : this;
    }

    private static <T> Step<T> guarded(Supplier<Step<T>> step, Runnable undo) {
        Step<T> next;
        try {
            next = step.get();
        } catch (RuntimeException | Error e) {
            undo.run();
            throw e;
        }
        return next.ifAbandoned(undo);
    }

    private static Runnable both(Runnable inner, Runnable outer) {
        return () -> {
            inner.run();
            outer.run();
        };
    }
}
