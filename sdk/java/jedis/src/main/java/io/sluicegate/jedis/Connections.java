package io.sluicegate.jedis;

import io.sluicegate.RedisPort.Failure;
import io.sluicegate.internal.Causes;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/**
 * Connections that are used one call at a time. They are made on threads of their own: a Redis that stands still answers no
 * greeting, and a caller waits for its deadline and no longer.
 */
final class Connections {
    /** Calls that are under way at a time; more wait for one that ends. */
    private static final int CONNECTIONS_MAX = 64;
    private static final long MAKER_IDLE_S = 10;
    /** By how much a call may be late: little beside a deadline, and few looks. */
    private static final long LOOK_MS = 10;

    private final HostAndPort address;
    private final JedisClientConfig config;
    private final LinkedBlockingDeque<Line> idle = new LinkedBlockingDeque<>();
    /** Number of connections that exist or are being made. */
    private final AtomicInteger number = new AtomicInteger();
    private final ThreadPoolExecutor makers;
    /** Why the last connection could not be made; null if it could. */
    private volatile String problem;
    private final Set<Line> lines = ConcurrentHashMap.newKeySet();
    /**
     * Ends connections whose calls last longer than they may. A socket's own timeout begins anew with each byte, so it does not end a
     * reply that comes in drops.
     */
    private final ScheduledExecutorService watch = Executors.newSingleThreadScheduledExecutor(daemons("sluicegate-watch"));
    private volatile boolean closed;

    Connections(HostAndPort address, JedisClientConfig config) {
        this.address = address;
        this.config = config;
        // The queue is bounded by the number of connections.
        makers = new ThreadPoolExecutor(CONNECTIONS_MAX, CONNECTIONS_MAX, MAKER_IDLE_S, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
            daemons("sluicegate-connect"));
        makers.allowCoreThreadTimeOut(true);
        watch.scheduleWithFixedDelay(() -> lines.forEach(line -> line.endIfLate(System.nanoTime())), LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
    }

    private String noConnection() {
        String lastProblem = problem;
        return "there is no connection to " + address + (lastProblem == null ? "" : ": " + lastProblem);
    }

    private static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** {@return a connection for one call, within this time} */
    Line borrow(long timeoutNanos) throws Failure, InterruptedException {
        Line free = idle.pollFirst();
        if (free != null) {
            return free;
        }
        if (closed) {
            throw new Failure(noConnection(), false, false);
        }
        if (number.incrementAndGet() <= CONNECTIONS_MAX) {
            return await(attempt(), timeoutNanos);
        }
        number.decrementAndGet();
        Line next = idle.pollFirst(timeoutNanos, TimeUnit.NANOSECONDS);
        if (next == null) {
            throw new Failure(noConnection(), false, true);
        }
        return next;
    }

    private CompletableFuture<Line> attempt() throws Failure {
        try {
            return CompletableFuture.supplyAsync(this::make, makers);
        } catch (RejectedExecutionException e) {
            number.decrementAndGet();
            throw new Failure(noConnection(), false, false);
        }
    }

    private Line make() {
        try {
            Line line = new Line(address, config);
            lines.add(line);
            problem = null;
            return line;
        } catch (RuntimeException | OutOfMemoryError | StackOverflowError e) {
            // Also what answers the greeting may be no Redis.
            problem = Causes.text(e, cause -> cause instanceof JedisDataException ? Causes.redisError(cause) : null);
            number.decrementAndGet();
            throw new CompletionException(e);
        }
    }

    private Line await(CompletableFuture<Line> connecting, long timeoutNanos) throws Failure, InterruptedException {
        try {
            return connecting.get(timeoutNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            connecting.thenAccept(this::giveBack);
            throw new Failure(noConnection(), false, true);
        } catch (InterruptedException e) {
            connecting.thenAccept(this::giveBack);
            throw e;
        } catch (ExecutionException e) {
            throw new Failure(noConnection(), false, false);
        }
    }

    /** Takes a connection back after its call. */
    void giveBack(Line connection) {
        if (closed || connection.isBroken()) {
            drop(connection);
            return;
        }
        idle.offerFirst(connection);
        if (closed) {
            dropIdle();
        }
    }

    /** Ends those that are not in use: where one was lost, the others most likely were too. */
    void dropIdle() {
        for (Line each = idle.pollFirst(); each != null; each = idle.pollFirst()) {
            drop(each);
        }
    }

    private void drop(Line connection) {
        number.decrementAndGet();
        lines.remove(connection);
        connection.setBroken();
        try {
            connection.close();
        } catch (JedisException e) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.DEBUG, "a connection was not ended", e);
        }
    }

    void close() {
        closed = true;
        makers.shutdown();
        watch.shutdownNow();
        dropIdle();
    }
}
