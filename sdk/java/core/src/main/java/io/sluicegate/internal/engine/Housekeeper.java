package io.sluicegate.internal.engine;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** The one thread of a gate: it looks at the policies and pays debts, every 100 ms if there are any. */
final class Housekeeper {
    private static final long TICK_MS = 100;
    private static final long LOOK_NANOS = 10_000_000_000L;
    /** Pause after a look that failed: a program without requests learns by it that Redis is back. */
    private static final long LOOK_AGAIN_NANOS = 1_000_000_000L;

    /** Pays what is owed. */
    interface Payer {
        void pay() throws InterruptedException;
    }

    private final RedisStore store;
    private final Policies policies;
    private final Payer payDebts;
    private final AtomicBoolean messageArrived = new AtomicBoolean(true);
    private final Thread thread;
    private volatile boolean closed;

    Housekeeper(RedisStore store, Policies policies, Payer payDebts) {
        this.store = store;
        this.policies = policies;
        this.payDebts = payDebts;
        this.thread = new Thread(this::run, "sluicegate");
        thread.setDaemon(true);
        thread.start();
    }

    /** Takes a message of the channel; an empty one means that earlier ones may have been missed. */
    void onMessage(String message) {
        if (message.isEmpty() || policies.catalog().isNews(message)) {
            messageArrived.set(true);
        }
    }

    private void run() {
        long lookAt = System.nanoTime() + untilNextLook();
        while (!closed) {
            try {
                if (messageArrived.compareAndSet(true, false) && !look(true)) {
                    lookAt = System.nanoTime() + LOOK_AGAIN_NANOS;
                }
                if (System.nanoTime() - lookAt >= 0) {
                    lookAt = System.nanoTime() + (look(false) ? untilNextLook() : LOOK_AGAIN_NANOS);
                }
                payDebts.pay();
                Thread.sleep(TICK_MS);
            } catch (InterruptedException e) {
                return;
            } catch (Exception e) {
                System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, "following the policies failed", e);
            }
        }
    }

    /** Looks at the policies; returns whether Redis gave them. */
    private boolean look(boolean fromMessage) throws InterruptedException {
        return store.run(policies.look(fromMessage)) == null;
    }

    // Each look is a little sooner or later, so that programs do not look together.
    private static long untilNextLook() {
        return (long) (LOOK_NANOS * ThreadLocalRandom.current().nextDouble(0.9, 1.1));
    }

    /** Ends it, and what it is doing, as soon as that can be. */
    void stop() {
        closed = true;
        thread.interrupt();
    }

    /** Waits for its end after that, until then at most. */
    void await(long untilNanos) throws InterruptedException {
        TimeUnit.NANOSECONDS.timedJoin(thread, untilNanos - System.nanoTime());
    }
}
