package io.sluicegate.internal.engine;

import io.sluicegate.Call;
import io.sluicegate.Carry;
import io.sluicegate.Decision;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.RedisPort;
import io.sluicegate.SluicegateException;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.policy.OverflowAction;
import io.sluicegate.internal.policy.Policy;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Runs the whole path of a decision before the first request does. Without it the first requests of a process, which come together, load
 * and compile the path all at once while their deadlines pass. It peeks and charges nothing, by an engine of its own: what it meets changes
 * nothing for the program.
 */
final class WarmUp {
    /** Peeks in all; what they run is compiled by then. */
    private static final int PEEKS = 400;
    /** Threads that peek at a time: as many connections a pool makes. */
    private static final int CALLERS = 16;
    /** Time that they may take, after the first one. */
    static final long PEEKS_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
    /** Time that the first peek waits for Redis: longer than a cold JVM needs. */
    private static final long FIRST_PEEK_NANOS = TimeUnit.SECONDS.toNanos(5);
    private static final String NAME = "warm-up";

    private final Engine engine;
    private final Transport limit;
    private final CountDownLatch left = new CountDownLatch(CALLERS);
    private volatile boolean isOver;

    private WarmUp(Engine engine) {
        this.engine = engine;
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.slidingLog("limit", 1, 1_000_000)));
        this.limit = engine.limit(new Policy(NAME, 0, Policy.SINCE_UNKNOWN, "", List.of("*"), rules, Map.of(), OverflowAction.REJECT, OnStoreFailure.DENY));
    }

    /** Waits for the first peek, and then for the others; where Redis does not answer the first one, the decisions will show it. */
    static void run(RedisPort port, Options options) {
        Engine engine = new Engine(port, new Options(options.app(), 1, FIRST_PEEK_NANOS, options.clock(), false), false);
        WarmUp warmUp = new WarmUp(engine);
        try {
            if (warmUp.peek(0) == Mode.STORE) {
                warmUp.peekConcurrently();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            warmUp.isOver = true;
            engine.endCalls();
        }
    }

    private void peekConcurrently() throws InterruptedException {
        for (int caller = 0; caller < CALLERS; caller++) {
            int first = caller * (PEEKS / CALLERS);
            Thread thread = new Thread(() -> peekFrom(first), "sluicegate-warm-up");
            thread.setDaemon(true);
            thread.start();
        }
        left.await(PEEKS_NANOS, TimeUnit.NANOSECONDS);
    }

    private void peekFrom(int first) {
        try {
            if (first == 0) {
                lookUpPolicies();
            }
            for (int place = first; place < first + PEEKS / CALLERS && !isOver; place++) {
                peek(place);
            }
        } catch (InterruptedException | RuntimeException e) {
            // The gate is closed already.
        } finally {
            left.countDown();
        }
    }

    /** Peeks on this thread and without one in turn. */
    private Mode peek(int place) throws InterruptedException {
        Call call = new Call(NAME, "k" + place, Verb.PEEK, 1, Numbers.NO_WAIT_GIVEN, null);
        Decision decision = place % 2 == 0 ? limit.decide(call) : limit.decideAsync(call).join();
        return decision.mode();
    }

    private void lookUpPolicies() throws InterruptedException {
        try {
            engine.published().decide(new Call(NAME, "k", Verb.PEEK, 1, Numbers.NO_WAIT_GIVEN, null));
        } catch (SluicegateException | CompletionException e) {
            // There is no policy of that name.
        }
    }
}
