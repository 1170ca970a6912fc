package io.sluicegate;

import io.sluicegate.internal.AbandonedPermits;
import io.sluicegate.internal.Checks;
import io.sluicegate.internal.Decided;
import io.sluicegate.internal.kernel.Numbers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Decides by one policy. A key selects the budget: 1 to 1,024 bytes of UTF-8; {@link #shared()} gives the budget that all share. A
 * cost is 1 to 2^31 permits. No method throws for a refusal unless its documentation has it; all throw a {@link SluicegateException}
 * where there is no decision. A limiter is immutable and safe for all threads.
 *
 * <p>A request that is allowed goes on after {@link Decision#waitTime()}, which is not 0 under a leaky bucket, for example:
 * {@link Decision#sleep()} waits for it.
 *
 * <p>A policy with a {@code concurrency} rule supports {@code acquire}, {@code renew} and {@code release}, and does not support {@code check},
 * {@code checkOrThrow}, {@code reserve}, {@code await} and {@code atMost}; with other policies it is the other way round. All policies
 * support {@code peek}, {@code refund} and {@code reset}. What a policy does not support fails with {@link ErrorCode#UNSUPPORTED_VERB}.
 *
 * <p>Methods block for as long as the deadline of their gate, and longer only where their documentation has it. Those that send one request and return a
 * decision have a twin ending in {@code Async} that does not block; {@code checkAsync(key).thenApply(Decision::orThrow)} is the twin of
 * {@code checkOrThrow}. Where there is no decision its future fails with the bare {@link SluicegateException}; as with every
 * future, {@code join} and stages behind it get that as the cause of a {@link java.util.concurrent.CompletionException}, and {@code get} as that
 * of an {@link java.util.concurrent.ExecutionException}. Such a future may be cancelled: a request that was sent may still be charged,
 * and one that a queue holds back gives up its turn. At most 10,000 of these calls are under way at a gate (over HTTP as many {@code acquire} beside them); one more fails at once with
 * {@link ErrorCode#NOT_CHARGED}. What depends on such a future should not block: a gate completes them on few threads.
 */
public final class Limiter {
    private final String policy;
    private final Transport transport;
    private final List<Observer> observers;
    private final boolean shared;

    /**
     * Makes a limiter; gates do.
     *
     * @param policy the policy's name
     * @param transport what decides
     */
    public Limiter(String policy, Transport transport) {
        this(Objects.requireNonNull(policy, "policy"), Objects.requireNonNull(transport, "transport"), List.of(), false);
    }

    private Limiter(String policy, Transport transport, List<Observer> observers, boolean shared) {
        this.policy = policy;
        this.transport = transport;
        this.observers = observers;
        this.shared = shared;
    }

    /**
     * Returns a copy of this limiter with observers, which get each decision.
     *
     * @param observers get each decision, in place of any observers before
     * @return the limiter
     */
    public Limiter observedBy(Observer... observers) {
        return new Limiter(policy, transport, List.of(observers), shared);
    }

    /**
     * Returns a copy of this limiter that accepts an empty key: the budget that all callers without a key share.
     *
     * @return the limiter, to be used as {@code limiter.shared().check("")}
     */
    public Limiter shared() {
        return new Limiter(policy, transport, observers, true);
    }

    /** {@return the policy's name} */
    public String policy() {
        return policy;
    }

    private Call call(Verb verb, String key, long cost, long maxWaitUs, String id) {
        Objects.requireNonNull(key, "key: is null; the budget that all share has the key \"\" of `limiter.shared()`");
        try {
            return new Call(policy, shared && key.isEmpty() ? null : Checks.key(key), verb, Checks.cost(cost), maxWaitUs,
                verb.namesPermit() ? Checks.id(id) : null);
        } catch (SluicegateException e) {
            // A request without its key has no decision either, and is counted with the others.
            observe(verb, null, e, observers.isEmpty() ? 0 : System.nanoTime());
            throw e;
        }
    }

    private Call call(Verb verb, String key, long cost) {
        return call(verb, key, cost, Numbers.NO_WAIT_GIVEN, null);
    }

    private Call call(Verb verb, String key, long cost, String id) {
        return call(verb, key, cost, Numbers.NO_WAIT_GIVEN, id);
    }

    private Decision decide(Call call) {
        long began = observers.isEmpty() ? 0 : System.nanoTime();
        Decision decision;
        try {
            decision = transport.decide(call);
        } catch (SluicegateException e) {
            observe(call.verb(), null, e, began);
            throw e;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            observe(call.verb(), null, e, began);
            throw interrupted(e);
        }
        observe(call.verb(), decision, null, began);
        return decision;
    }

    private static SluicegateException interrupted(Exception cause) {
        return ErrorCode.INTERRUPTED.with(Map.of("cause", cause instanceof InterruptedException ? "the thread was interrupted" : "the call was cancelled"));
    }

    private void observe(Verb verb, Decision decision, Throwable problem, long began) {
        for (Observer observer : observers) {
            try {
                observe(observer, verb, decision, problem, System.nanoTime() - began);
            } catch (RuntimeException e) {
                // The request is charged already: its caller needs the decision.
                System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, "an observer of policy `" + policy + "` failed", e);
            }
        }
    }

    private void observe(Observer observer, Verb verb, Decision decision, Throwable problem, long nanos) {
        if (problem == null) {
            observer.decided(verb.text(), decision, nanos);
        } else if (problem instanceof SluicegateException failure) {
            observer.failed(policy, verb.text(), failure, nanos);
        } else if (problem instanceof InterruptedException || problem instanceof CancellationException) {
            observer.failed(policy, verb.text(), interrupted((Exception) problem), nanos);
        }
    }

    private CompletableFuture<Decision> decideAsync(Supplier<Call> callOf) {
        long began = observers.isEmpty() ? 0 : System.nanoTime();
        Call call;
        CompletableFuture<Decision> decided;
        try {
            call = callOf.get();
            decided = transport.decideAsync(call);
        } catch (SluicegateException e) {
            return CompletableFuture.failedFuture(e);
        }
        if (observers.isEmpty()) {
            return decided;
        }
        // Another future: the observers see also what becomes of a call whose future is cancelled. A stage would wrap the exception.
        CompletableFuture<Decision> observed = new CompletableFuture<>();
        decided.whenComplete((decision, problem) -> {
            observe(call.verb(), decision, problem, began);
            if (problem == null) {
                observed.complete(decision);
            } else {
                observed.completeExceptionally(problem);
            }
        });
        observed.whenComplete((decision, problem) -> decided.cancel(true));
        return observed;
    }

    /**
     * Takes one permit, or is refused. Where the policy queues, it blocks for the policy's {@code max_wait} at most.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return the decision; if it is allowed, {@linkplain Decision#sleep() wait} first
     */
    public Decision check(String key) {
        return check(key, 1);
    }

    /**
     * Takes permits, or is refused. Where the policy queues, it blocks for the policy's {@code max_wait} at most.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return the decision; if it is allowed, {@linkplain Decision#sleep() wait} first
     */
    public Decision check(String key, long cost) {
        return decide(call(Verb.CHECK, key, cost));
    }

    /**
     * Takes one permit.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return the decision, which allows: {@linkplain Decision#sleep() wait} first
     * @throws RateLimitExceededException if it is refused
     */
    public Decision checkOrThrow(String key) {
        return check(key).orThrow();
    }

    /**
     * Takes permits within a time: the answer has the time that the caller has to wait before it goes on.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @param maxWait the longest wait, up to 2^53 - 1 µs
     * @return the decision; if it is allowed, {@linkplain Decision#sleep() wait} first
     */
    public Decision reserve(String key, long cost, Duration maxWait) {
        return decide(call(Verb.RESERVE, key, cost, Checks.maxWaitUs(maxWait), null));
    }

    /**
     * Takes a permit and sleeps until it may be used. Where the rules cannot book the future, it sleeps until, by their answer,
     * it can pass, and tries again, 64 times at most.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param maxWait the longest time in all
     * @return the last decision, whose wait is over
     * @throws InterruptedException if the thread is interrupted while it sleeps; what was booked stays booked
     */
    public Decision await(String key, Duration maxWait) throws InterruptedException {
        long left = Checks.maxWaitUs(maxWait);
        long held = 0;
        for (int tries = 1; ; tries++) {
            Decision decision = decide(call(Verb.RESERVE, key, 1, left, null));
            long pauseUs = decision.allowed() ? decision.waitUs() : decision.retryAfterUs();
            boolean retries = !decision.allowed() && decision.retryAfterUs() != Decision.NEVER && pauseUs <= left && tries < 64;
            if (decision.allowed() || retries) {
                TimeUnit.MICROSECONDS.sleep(pauseUs);
                held += pauseUs;
                left -= Math.min(pauseUs, left);
            }
            if (!retries) {
                return Decided.held(decision, held);
            }
        }
    }

    /**
     * Takes what there is, up to a cost.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost the most
     * @return the decision, with the number of permits that were granted
     */
    public Decision atMost(String key, long cost) {
        return decide(call(Verb.AT_MOST, key, cost));
    }

    /**
     * Says what a check would, and takes nothing.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return the decision
     */
    public Decision peek(String key) {
        return peek(key, 1);
    }

    /**
     * Says what a check would, and takes nothing.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return the decision
     */
    public Decision peek(String key, long cost) {
        return decide(call(Verb.PEEK, key, cost));
    }

    /**
     * Gives permits back, never above full.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return the decision, with the number of permits that were taken back
     */
    public Decision refund(String key, long cost) {
        return decide(call(Verb.REFUND, key, cost));
    }

    /**
     * Forgets what is in use of a key.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return the decision
     */
    public Decision reset(String key) {
        return decide(call(Verb.RESET, key, 1));
    }

    /**
     * Holds a permit of a {@code concurrency} rule, by a random name. If the thread is interrupted or there is no answer, the permit may be
     * held: it is released in the background.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return the attempt, to be closed after use
     */
    public Acquisition acquire(String key) {
        return acquire(key, 1, null);
    }

    /**
     * As {@link #acquire(String)}, and waits for a permit where the rule has a {@code queue}. Permits are given in the
     * order in which requests came to the store. The timeout or deadline of the gate is not part of the wait. In memory the wait is ignored.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param maxWait the longest wait, in whole ms; it counts in place of the policy's {@code max_wait}
     * @return the attempt, to be closed after use
     */
    public Acquisition acquire(String key, Duration maxWait) {
        return acquire(key, 1, Objects.requireNonNull(maxWait, "maxWait"));
    }

    /**
     * As {@link #acquire(String, Duration)}, with a cost.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @param maxWait the longest wait; null: as long as the policy lets a request wait
     * @return the attempt, to be closed after use
     */
    public Acquisition acquire(String key, long cost, Duration maxWait) {
        String id = UUID.randomUUID().toString();
        try {
            return acquired(key, id, acquire(key, id, cost, maxWait));
        } catch (RuntimeException e) {
            if (mayBeHeld(e)) {
                abandon(key, id);
            }
            throw e;
        }
    }

    private Acquisition acquired(String key, String id, Decision decision) {
        if (!decision.allowed() && isWithoutStore(decision)) {
            abandonLater(key, id);
        }
        return new Acquisition(this, key, id, decision);
    }

    /** {@return whether Redis did not decide in time: it may have granted a permit all the same} */
    static boolean isWithoutStore(Decision decision) {
        return switch (decision.mode()) {
            case LOCAL, DENY, SHED -> true;
            case STORE, LEASED, REMEMBERED, ALLOW -> false;
        };
    }

    private static boolean mayBeHeld(Throwable problem) {
        return !(problem instanceof SluicegateException undecided) || undecided.charged() != Charged.NO;
    }

    /** Releases in the background what may be held by a name that no caller has. */
    void abandon(String key, String id) {
        AbandonedPermits.release(() -> releaseUnobserved(key, id));
    }

    /** Releases in the background, after a second, what Redis may have granted too late. */
    void abandonLater(String key, String id) {
        AbandonedPermits.releaseLater(() -> releaseUnobserved(key, id));
    }

    /** No observer sees it: the program did not ask for it. */
    CompletableFuture<Decision> releaseUnobserved(String key, String id) {
        return observedBy().releaseAsync(key, id);
    }

    /**
     * Holds permits of a {@code concurrency} rule by a name.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name, 1 to 1,024 bytes
     * @param cost how many
     * @return the decision; a name that is held already is refused for good. Under {@code overflow: shadow} it passes over the limit,
     *     and nothing is held
     */
    public Decision acquire(String key, String id, long cost) {
        return acquire(key, id, cost, null);
    }

    /**
     * As {@link #acquire(String, String, long)}, and waits as {@link #acquire(String, Duration)}. If you do not get the decision, release the name.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name, 1 to 1,024 bytes
     * @param cost how many
     * @param maxWait the longest wait; null: as long as the policy lets a request wait
     * @return the decision; {@link Decision#heldUs()} is how long it waited
     */
    public Decision acquire(String key, String id, long cost, Duration maxWait) {
        return decide(call(Verb.ACQUIRE, key, cost, maxWaitUs(maxWait), id));
    }

    private static long maxWaitUs(Duration maxWait) {
        return maxWait == null ? Numbers.NO_WAIT_GIVEN : Checks.maxWaitUs(maxWait);
    }

    /**
     * Gives back what is held by a name.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @return the decision; a name that is not held is refused, but passes under {@code overflow: shadow}
     */
    public Decision release(String key, String id) {
        return decide(call(Verb.RELEASE, key, 1, id));
    }

    /**
     * Holds what is held by a name for another ttl.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @return the decision; a name that is not held is refused, but passes under {@code overflow: shadow}
     */
    public Decision renew(String key, String id) {
        return decide(call(Verb.RENEW, key, 1, id));
    }

    /**
     * As {@link #check(String)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return a future of the decision
     */
    public CompletableFuture<Decision> checkAsync(String key) {
        return checkAsync(key, 1);
    }

    /**
     * As {@link #check(String, long)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return a future of the decision
     */
    public CompletableFuture<Decision> checkAsync(String key, long cost) {
        return decideAsync(() -> call(Verb.CHECK, key, cost));
    }

    /**
     * As {@link #reserve}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @param maxWait the longest wait
     * @return a future of the decision
     */
    public CompletableFuture<Decision> reserveAsync(String key, long cost, Duration maxWait) {
        return decideAsync(() -> call(Verb.RESERVE, key, cost, Checks.maxWaitUs(maxWait), null));
    }

    /**
     * As {@link #atMost}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost the most
     * @return a future of the decision
     */
    public CompletableFuture<Decision> atMostAsync(String key, long cost) {
        return decideAsync(() -> call(Verb.AT_MOST, key, cost));
    }

    /**
     * As {@link #peek(String)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return a future of the decision
     */
    public CompletableFuture<Decision> peekAsync(String key) {
        return peekAsync(key, 1);
    }

    /**
     * As {@link #peek(String, long)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return a future of the decision
     */
    public CompletableFuture<Decision> peekAsync(String key, long cost) {
        return decideAsync(() -> call(Verb.PEEK, key, cost));
    }

    /**
     * As {@link #refund}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @return a future of the decision
     */
    public CompletableFuture<Decision> refundAsync(String key, long cost) {
        return decideAsync(() -> call(Verb.REFUND, key, cost));
    }

    /**
     * As {@link #reset}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return a future of the decision
     */
    public CompletableFuture<Decision> resetAsync(String key) {
        return decideAsync(() -> call(Verb.RESET, key, 1));
    }

    /**
     * As {@link #acquire(String)}. If the future is cancelled before it completes, the permit may be held: it is released in the background.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @return a future of the attempt, to be closed after use
     */
    public CompletableFuture<Acquisition> acquireAsync(String key) {
        return acquireAsync(key, 1, null);
    }

    /**
     * As {@link #acquire(String, Duration)}. A request that waits holds no thread. If the future is cancelled, it waits no longer.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param maxWait the longest wait, in whole ms
     * @return a future of the attempt, to be closed after use
     */
    public CompletableFuture<Acquisition> acquireAsync(String key, Duration maxWait) {
        return acquireAsync(key, 1, Objects.requireNonNull(maxWait, "maxWait"));
    }

    /**
     * As {@link #acquire(String, long, Duration)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param cost how many
     * @param maxWait the longest wait; null: as long as the policy lets a request wait
     * @return a future of the attempt, to be closed after use
     */
    public CompletableFuture<Acquisition> acquireAsync(String key, long cost, Duration maxWait) {
        String id = UUID.randomUUID().toString();
        CompletableFuture<Acquisition> acquired = new CompletableFuture<>();
        CompletableFuture<Decision> decided = acquireAsync(key, id, cost, maxWait);
        decided.whenComplete((decision, problem) -> {
            if (problem != null) {
                acquired.completeExceptionally(problem);
            }
            // A future that was cancelled takes no decision: nobody will close its permit.
            boolean hasOwner = problem == null && acquired.complete(acquired(key, id, decision));
            boolean mayBeHeld = problem == null ? decision.allowed() : mayBeHeld(problem);
            if (!hasOwner && mayBeHeld) {
                abandon(key, id);
            }
        });
        acquired.whenComplete((attempt, problem) -> decided.cancel(true));
        return acquired;
    }

    /**
     * As {@link #acquire(String, String, long)}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @param cost how many
     * @return a future of the decision
     */
    public CompletableFuture<Decision> acquireAsync(String key, String id, long cost) {
        return acquireAsync(key, id, cost, null);
    }

    /**
     * As {@link #acquire(String, String, long, Duration)}. If you cancel the future, release the name.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @param cost how many
     * @param maxWait the longest wait; null: as long as the policy lets a request wait
     * @return a future of the decision
     */
    public CompletableFuture<Decision> acquireAsync(String key, String id, long cost, Duration maxWait) {
        return decideAsync(() -> call(Verb.ACQUIRE, key, cost, maxWaitUs(maxWait), id));
    }

    /**
     * As {@link #release}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @return a future of the decision
     */
    public CompletableFuture<Decision> releaseAsync(String key, String id) {
        return decideAsync(() -> call(Verb.RELEASE, key, 1, id));
    }

    /**
     * As {@link #renew}.
     *
     * @param key the key of the budget; empty for that of {@link #shared()}
     * @param id the name
     * @return a future of the decision
     */
    public CompletableFuture<Decision> renewAsync(String key, String id) {
        return decideAsync(() -> call(Verb.RENEW, key, 1, id));
    }
}
