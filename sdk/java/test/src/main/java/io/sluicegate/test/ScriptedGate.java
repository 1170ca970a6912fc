package io.sluicegate.test;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.Decided;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Objects;
import java.util.Queue;

/**
 * A gate that answers the requests of a program under test one after the other, as the test sets. No rules are needed.
 *
 * <pre>{@code
 * ScriptedGate gate = new ScriptedGate().allow(10, 9).refuse(Duration.ofSeconds(2));
 * }</pre>
 */
public final class ScriptedGate implements Gate {
    private final Queue<Outcome> outcomes = new ArrayDeque<>();

    /** A failure, or what is left of a limit and when a refused request may pass. */
    private record Outcome(SluicegateException failure, boolean allowed, long limit, long remaining, long retryAfterUs) {}

    /** Makes a gate without outcomes. */
    public ScriptedGate() {
        // Its parts are made above.
    }

    /**
     * Lets the next request pass. Its cost is granted.
     *
     * @param limit the limit that the decision reports
     * @param remaining the permits that are left
     * @return this gate
     */
    public ScriptedGate allow(long limit, long remaining) {
        return with(new Outcome(null, true, limit, remaining, 0));
    }

    /**
     * Refuses the next request.
     *
     * @param retryAfter when it may pass, in whole µs; null: never
     * @return this gate
     */
    public ScriptedGate refuse(Duration retryAfter) {
        return with(new Outcome(null, false, 0, 0, retryAfter == null ? Decision.NEVER : retryAfter.toNanos() / 1000));
    }

    /**
     * Leaves the next request without a decision.
     *
     * @param why what it throws
     * @return this gate
     */
    public ScriptedGate fail(SluicegateException why) {
        return with(new Outcome(Objects.requireNonNull(why, "why"), false, 0, 0, 0));
    }

    private synchronized ScriptedGate with(Outcome outcome) {
        outcomes.add(outcome);
        return this;
    }

    /** {@return the number of outcomes that no request has taken yet} */
    public synchronized int left() {
        return outcomes.size();
    }

    private synchronized Decision next(Call call) {
        Outcome outcome = outcomes.poll();
        if (outcome == null) {
            throw new IllegalStateException("no outcome is left for a request of `" + call.key() + "` under `" + call.policy() + "`");
        }
        if (outcome.failure != null) {
            throw outcome.failure;
        }
        return new Decided(outcome.allowed, outcome.allowed ? call.cost() : 0, 0, outcome.limit, outcome.remaining, outcome.retryAfterUs, 0,
            call.policy(), "", List.of(), Mode.STORE, null, 0);
    }

    /**
     * The limiter of a policy.
     *
     * @param name the policy's name; any name has one
     */
    @Override
    public Limiter policy(String name) {
        return new Limiter(name, this::next);
    }

    @Override
    public void close() {
        // Nothing is open.
    }
}
