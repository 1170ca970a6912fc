package io.sluicegate.internal;

import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Calls whose callers do not wait, and which hold no thread while an answer is on its way. So many are under way at a time; the others wait for
 * a place, and their deadline begins when they have one.
 *
 * <p>An answer comes on a thread of the client: the event loop of Lettuce, or a worker of the HTTP client. A program that blocks in a
 * stage behind its future, such as by another check, would keep that thread from reading the very answer that it waits for. So futures
 * are completed on a few threads of the gate, except where the answer is known before the call returns.
 */
public final class AsyncCalls implements AutoCloseable {
    /** Calls under way; more are refused, as they would only wait past their deadlines. */
    static final int CALLS_MAX = 10_000;
    /** Threads that complete futures: what depends on these should not block, so few are enough; where it does, the pool has more. */
    public static final int THREADS = 4;

    private final AsyncPool pool;
    private final Semaphore room = new Semaphore(CALLS_MAX);
    private final Semaphore places;
    /** Calls that wait for a place; {@link #CALLS_MAX} bounds them. */
    private final Queue<Waiting> waiting = new ConcurrentLinkedQueue<>();
    /** Calls under way, for the end of the gate; {@link #CALLS_MAX} bounds them. */
    private final Set<Running> calls = ConcurrentHashMap.newKeySet();

    private record Waiting(Running call, Runnable resume, Runnable abandoned) {}

    /** So many calls are under way at a time; {@code pool} completes their futures. */
    public AsyncCalls(int atOnceMax, AsyncPool pool) {
        this.places = new Semaphore(atOnceMax);
        this.pool = pool;
    }

    static RuntimeException tooMany() {
        return ErrorCode.NOT_CHARGED.with(Map.of("cause", "too many calls are under way"));
    }

    /** {@return a future of the decision of a call} {@code first} begins the call on this thread if there is a place, and must not block. */
    public CompletableFuture<Decision> begin(Consumer<Running> first) {
        if (!room.tryAcquire()) {
            return CompletableFuture.failedFuture(tooMany());
        }
        Running call = new Running();
        calls.add(call);
        Runnable start = () -> {
            try {
                first.accept(call);
            } catch (RuntimeException | Error e) {
                call.end(null, e);
            }
        };
        if (waiting.isEmpty() && places.tryAcquire()) {
            call.beginner = Thread.currentThread();
            start.run();
            call.beginner = null;
        } else {
            enter(new Waiting(call, start, () -> { }));
        }
        return call.result;
    }

    private void enter(Waiting next) {
        waiting.add(next);
        fillPlaces();
    }

    // What goes on here never fills places itself, so this does not become a recursion as long as the queue.
    private void fillPlaces() {
        while (!waiting.isEmpty() && places.tryAcquire()) {
            Waiting next = waiting.poll();
            if (next != null && !next.call.result.isDone()) {
                next.resume.run();
                continue;
            }
            places.release();
            if (next != null) {
                next.abandoned.run();
                next.call.leave();
            }
        }
    }

    private void execute(Runnable task) {
        try {
            pool.execute(task);
        } catch (RejectedExecutionException e) {
            task.run();
        }
    }

    /** Ends all calls: the futures fail, and answers that still come count for the budgets alone. */
    @Override
    public void close() {
        calls.forEach(call -> call.result.completeExceptionally(AsyncPool.interrupted("the gate was closed")));
        pool.close();
    }

    /** A call that has begun. Its future may be cancelled at any time: the call then ends at its next pause, or with its answer. */
    public final class Running {
        private final CompletableFuture<Decision> result = new CompletableFuture<>();
        private volatile Thread beginner;
        private volatile boolean hasEnded;

        /** Ends the call with a decision, or with a problem if that is not null. */
        public void end(Decision decision, Throwable problem) {
            hasEnded = true;
            Runnable completion = () -> {
                places.release();
                fillPlaces();
                if (problem == null) {
                    result.complete(decision);
                } else {
                    result.completeExceptionally(problem);
                }
                leave();
            };
            if (beginner == Thread.currentThread()) {
                completion.run();
            } else {
                execute(completion);
            }
        }

        /** Gives the place to others for a time, and then goes on; if the future is cancelled before, {@code abandoned} runs instead. */
        public void pause(long us, Runnable resume, Runnable abandoned) {
            places.release();
            execute(AsyncCalls.this::fillPlaces);
            CompletableFuture<Void> timer = new CompletableFuture<Void>().completeOnTimeout(null, us, TimeUnit.MICROSECONDS);
            timer.whenComplete((over, cancelled) -> {
                if (cancelled == null) {
                    enter(new Waiting(this, resume, abandoned));
                } else {
                    abandoned.run();
                    leave();
                }
            });
            result.whenComplete((decision, problem) -> timer.cancel(false));
        }

        /** Runs {@code undo} if the future is cancelled, or the gate closed, before the call has ended. */
        public void ifAbandoned(Runnable undo) {
            result.whenComplete((decision, problem) -> {
                if (!hasEnded) {
                    undo.run();
                }
            });
        }

        /** {@return whether nobody takes the decision any more} */
        public boolean isAbandoned() {
            return result.isDone();
        }

        private void leave() {
            calls.remove(this);
            room.release();
        }
    }
}
