package io.sluicegate;

import io.sluicegate.internal.Checks;
import io.sluicegate.internal.Decided;
import io.sluicegate.internal.kernel.Numbers;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Supplier;

/**
 * Decides by one policy. A key says whose budget it is: 1 to 1,024 bytes of UTF-8, or null for the one that all share. A
 * cost is 1 to 2^31 permits. No method throws for a refusal unless it says so; all throw a {@link SluicegateException}
 * where there is no decision. Methods block for as long as the deadline of their gate, and longer only where they say it;
 * each has a twin ending in {@code Async} that does not. Cancelling such a future interrupts the call.
 */
public final class Limiter {
    private final String policy;
    private final Transport transport;
    private final Observer observer;

    /**
     * Makes a limiter; gates do.
     *
     * @param policy the policy's name
     * @param transport what decides
     */
    public Limiter(String policy, Transport transport) {
        this(policy, transport, null);
    }

    private Limiter(String policy, Transport transport, Observer observer) {
        this.policy = policy;
        this.transport = transport;
        this.observer = observer;
    }

    /**
     * The same limiter, which reports each decision to an observer.
     *
     * @param observer gets each decision, in place of any observer before
     * @return the limiter
     */
    public Limiter observedBy(Observer observer) {
        return new Limiter(policy, transport, observer);
    }

    /** {@return the policy's name} */
    public String policy() {
        return policy;
    }

    private Decision decide(Verb verb, String key, long cost, long maxWaitUs, String id) {
        Call call = new Call(policy, Checks.key(key), verb, Checks.cost(cost), maxWaitUs, id == null ? null : Checks.id(id));
        if (observer == null) {
            return ask(call);
        }
        long began = System.nanoTime();
        Decision decision;
        try {
            decision = ask(call);
        } catch (SluicegateException e) {
            observer.failed(policy, verb.text(), e, System.nanoTime() - began);
            throw e;
        }
        observer.decided(verb.text(), decision, System.nanoTime() - began);
        return decision;
    }

    private Decision ask(Call call) {
        try {
            return transport.decide(call);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw ErrorCode.INTERRUPTED.with(Map.of("cause", "the thread was interrupted"));
        }
    }

    // Cancelling the future interrupts the call.
    private CompletableFuture<Decision> later(Supplier<Decision> decision) {
        CompletableFuture<Decision> later = new CompletableFuture<>();
        FutureTask<Boolean> task = new FutureTask<>(() -> {
            try {
                return later.complete(decision.get());
            } catch (RuntimeException e) {
                return later.completeExceptionally(e);
            }
        });
        later.whenComplete((said, problem) -> task.cancel(later.isCancelled()));
        try {
            transport.executor().execute(task);
        } catch (RejectedExecutionException e) {
            later.completeExceptionally(ErrorCode.NOT_CHARGED.with(Map.of("cause", "too many calls wait for a thread")));
        }
        return later;
    }

    /**
     * Takes one permit, or is refused. Where the policy queues, it blocks for the policy's {@code max_wait} at most.
     *
     * @param key whose budget
     * @return the decision
     */
    public Decision check(String key) {
        return check(key, 1);
    }

    /**
     * Takes permits, or is refused. Where the policy queues, it blocks for the policy's {@code max_wait} at most.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision
     */
    public Decision check(String key, long cost) {
        return decide(Verb.CHECK, key, cost, Numbers.NO_WAIT_GIVEN, null);
    }

    /**
     * Takes one permit.
     *
     * @param key whose budget
     * @return the decision, which allows
     * @throws RateLimitExceededException if it is refused
     */
    public Decision checkOrThrow(String key) {
        return check(key).orThrow();
    }

    /**
     * Takes permits within a time: the answer says how long the caller has to wait before it goes on.
     *
     * @param key whose budget
     * @param cost how many
     * @param maxWait the longest wait, up to 2^53 - 1 µs
     * @return the decision
     */
    public Decision reserve(String key, long cost, Duration maxWait) {
        return decide(Verb.RESERVE, key, cost, Checks.maxWaitUs(maxWait), null);
    }

    /**
     * Takes a permit and sleeps until it may be used. Where the rules cannot book the future, it sleeps until they say that
     * it can pass, and asks again, 64 times at most.
     *
     * @param key whose budget
     * @param maxWait the longest time in all
     * @return the last decision, whose wait is over
     * @throws InterruptedException if the thread is interrupted while it sleeps; what was booked stays booked
     */
    public Decision await(String key, Duration maxWait) throws InterruptedException {
        long left = Checks.maxWaitUs(maxWait);
        long held = 0;
        for (int tries = 1; ; tries++) {
            Decision said = decide(Verb.RESERVE, key, 1, left, null);
            long pauseUs = said.allowed() ? said.waitUs() : said.retryAfterUs();
            boolean asksAgain = !said.allowed() && said.retryAfterUs() != Decision.NEVER && pauseUs <= left && tries < 64;
            if (said.allowed() || asksAgain) {
                sleep(pauseUs);
                held += pauseUs;
                left -= Math.min(pauseUs, left);
            }
            if (!asksAgain) {
                return Decided.held(said, held);
            }
        }
    }

    private static void sleep(long us) throws InterruptedException {
        Thread.sleep(us / 1000, (int) (us % 1000) * 1000);
    }

    /**
     * Takes what there is, up to a cost.
     *
     * @param key whose budget
     * @param cost the most
     * @return the decision, which says how many were granted
     */
    public Decision atMost(String key, long cost) {
        return decide(Verb.AT_MOST, key, cost, Numbers.NO_WAIT_GIVEN, null);
    }

    /**
     * Says what a check would, and takes nothing.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision
     */
    public Decision peek(String key, long cost) {
        return decide(Verb.PEEK, key, cost, Numbers.NO_WAIT_GIVEN, null);
    }

    /**
     * Gives permits back, never above full.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision, which says how many were taken back
     */
    public Decision refund(String key, long cost) {
        return decide(Verb.REFUND, key, cost, Numbers.NO_WAIT_GIVEN, null);
    }

    /**
     * Forgets what is in use of a key.
     *
     * @param key whose budget
     * @return the decision
     */
    public Decision reset(String key) {
        return decide(Verb.RESET, key, 1, Numbers.NO_WAIT_GIVEN, null);
    }

    /**
     * Holds a permit of a {@code concurrency} rule, by a name that nobody can guess.
     *
     * @param key whose budget
     * @return the attempt
     */
    public Acquisition acquire(String key) {
        String id = UUID.randomUUID().toString();
        return new Acquisition(this, key, id, acquire(key, id, 1));
    }

    /**
     * Holds permits of a {@code concurrency} rule by a name.
     *
     * @param key whose budget
     * @param id the name, 1 to 1,024 bytes
     * @param cost how many
     * @return the decision; a name that is held already is refused for good. Under {@code overflow: shadow} it passes over the limit,
     *     and nothing is held
     */
    public Decision acquire(String key, String id, long cost) {
        return decide(Verb.ACQUIRE, key, cost, Numbers.NO_WAIT_GIVEN, id);
    }

    /**
     * Gives back what is held by a name.
     *
     * @param key whose budget
     * @param id the name
     * @return the decision; a name that is not held is refused, but passes under {@code overflow: shadow}
     */
    public Decision release(String key, String id) {
        return decide(Verb.RELEASE, key, 1, Numbers.NO_WAIT_GIVEN, id);
    }

    /**
     * Holds what is held by a name for another ttl.
     *
     * @param key whose budget
     * @param id the name
     * @return the decision; a name that is not held is refused, but passes under {@code overflow: shadow}
     */
    public Decision renew(String key, String id) {
        return decide(Verb.RENEW, key, 1, Numbers.NO_WAIT_GIVEN, id);
    }

    /**
     * As {@link #check(String)}.
     *
     * @param key whose budget
     * @return the decision, later
     */
    public CompletableFuture<Decision> checkAsync(String key) {
        return checkAsync(key, 1);
    }

    /**
     * As {@link #check(String, long)}.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision, later
     */
    public CompletableFuture<Decision> checkAsync(String key, long cost) {
        return later(() -> check(key, cost));
    }

    /**
     * As {@link #reserve}.
     *
     * @param key whose budget
     * @param cost how many
     * @param maxWait the longest wait
     * @return the decision, later
     */
    public CompletableFuture<Decision> reserveAsync(String key, long cost, Duration maxWait) {
        return later(() -> reserve(key, cost, maxWait));
    }

    /**
     * As {@link #atMost}.
     *
     * @param key whose budget
     * @param cost the most
     * @return the decision, later
     */
    public CompletableFuture<Decision> atMostAsync(String key, long cost) {
        return later(() -> atMost(key, cost));
    }

    /**
     * As {@link #peek}.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision, later
     */
    public CompletableFuture<Decision> peekAsync(String key, long cost) {
        return later(() -> peek(key, cost));
    }

    /**
     * As {@link #refund}.
     *
     * @param key whose budget
     * @param cost how many
     * @return the decision, later
     */
    public CompletableFuture<Decision> refundAsync(String key, long cost) {
        return later(() -> refund(key, cost));
    }

    /**
     * As {@link #reset}.
     *
     * @param key whose budget
     * @return the decision, later
     */
    public CompletableFuture<Decision> resetAsync(String key) {
        return later(() -> reset(key));
    }

    /**
     * As {@link #acquire(String, String, long)}.
     *
     * @param key whose budget
     * @param id the name
     * @param cost how many
     * @return the decision, later
     */
    public CompletableFuture<Decision> acquireAsync(String key, String id, long cost) {
        return later(() -> acquire(key, id, cost));
    }

    /**
     * As {@link #release}.
     *
     * @param key whose budget
     * @param id the name
     * @return the decision, later
     */
    public CompletableFuture<Decision> releaseAsync(String key, String id) {
        return later(() -> release(key, id));
    }

    /**
     * As {@link #renew}.
     *
     * @param key whose budget
     * @param id the name
     * @return the decision, later
     */
    public CompletableFuture<Decision> renewAsync(String key, String id) {
        return later(() -> renew(key, id));
    }
}
