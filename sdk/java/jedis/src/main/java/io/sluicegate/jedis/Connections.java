package io.sluicegate.jedis;

import io.sluicegate.RedisPort.Failure;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.exceptions.JedisException;

/**
 * Connections that are used one call at a time. They are made on threads of their own: a Redis that stands still answers no
 * greeting, and a caller waits for its deadline and no longer.
 */
final class Connections {
    /** Calls that are under way at a time; more wait for one that ends. */
    private static final int CONNECTIONS_MAX = 64;
    private static final long MAKER_IDLE_S = 10;

    private final HostAndPort address;
    private final JedisClientConfig config;
    private final LinkedBlockingDeque<Line> idle = new LinkedBlockingDeque<>();
    /** Those that exist or are being made. */
    private final AtomicInteger number = new AtomicInteger();
    private final ThreadPoolExecutor makers;
    private final String noConnection;
    private final Watch watch = new Watch();
    private volatile boolean closed;

    Connections(HostAndPort address, JedisClientConfig config) {
        this.address = address;
        this.noConnection = "there is no connection to " + address;
        this.config = config;
        // The queue is bounded by the number of connections.
        makers = new ThreadPoolExecutor(CONNECTIONS_MAX, CONNECTIONS_MAX, MAKER_IDLE_S, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
            task -> {
                Thread thread = new Thread(task, "sluicegate-connect");
                thread.setDaemon(true);
                return thread;
            });
        makers.allowCoreThreadTimeOut(true);
    }

    /** {@return a connection for one call, within this time} */
    Line borrow(long timeoutNanos) throws Failure, InterruptedException {
        Line free = idle.pollFirst();
        if (free != null) {
            return free;
        }
        if (closed) {
            throw new Failure(noConnection, false, false);
        }
        if (number.incrementAndGet() <= CONNECTIONS_MAX) {
            return await(attempt(), timeoutNanos);
        }
        number.decrementAndGet();
        Line next = idle.pollFirst(timeoutNanos, TimeUnit.NANOSECONDS);
        if (next == null) {
            throw new Failure(noConnection, false, true);
        }
        return next;
    }

    private CompletableFuture<Line> attempt() throws Failure {
        try {
            return CompletableFuture.supplyAsync(this::make, makers);
        } catch (RejectedExecutionException e) {
            number.decrementAndGet();
            throw new Failure(noConnection, false, false);
        }
    }

    private Line make() {
        try {
            return new Line(address, config);
        } catch (RuntimeException | OutOfMemoryError | StackOverflowError e) {
            // Also what answers the greeting may be no Redis.
            number.decrementAndGet();
            throw new CompletionException(e);
        }
    }

    private Line await(CompletableFuture<Line> made, long timeoutNanos) throws Failure, InterruptedException {
        try {
            return made.get(timeoutNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            made.thenAccept(this::giveBack);
            throw new Failure(noConnection, false, true);
        } catch (InterruptedException e) {
            made.thenAccept(this::giveBack);
            throw e;
        } catch (ExecutionException e) {
            throw new Failure(noConnection, false, false);
        }
    }

    /** A call begins over a connection, which is ended if the call is not over then. */
    void begin(Line connection, long untilNanos) {
        connection.begin(untilNanos);
        watch.over(connection);
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
        watch.forget(connection);
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
        watch.close();
        dropIdle();
    }
}
