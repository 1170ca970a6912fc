package io.sluicegate.lettuce;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.netty.channel.ConnectTimeoutException;
import io.sluicegate.RedisPort;
import java.net.ConnectException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Reaches Redis through Lettuce, with one connection that all threads share and one that listens. The connections are its
 * own, since a connection with Lettuce's defaults sends a command again after it was lost, and would charge twice.
 */
public final class LettucePort implements RedisPort {
    private static final Duration CONNECT = Duration.ofMillis(100);
    /** How often a connection is tried that could not be made at first. */
    private static final long TRY_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    /** How long {@code connect} waits for the connection: longer than a cold JVM needs, also where there is much to do. */
    private static final long AWAIT_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final RedisClient client;
    private final RedisURI uri;
    /** Says where there is none, without credentials. */
    private final String noConnection;
    private final ReentrantLock connecting = new ReentrantLock();
    private volatile CompletableFuture<StatefulRedisConnection<byte[], byte[]>> attempt;
    private boolean listening;
    private volatile boolean closed;
    private long triedAt = System.nanoTime() - TRY_AGAIN_NANOS;
    private Subscription subscription;

    private record Subscription(String channel, Consumer<String> listener) {}

    private LettucePort(RedisURI uri) {
        this.uri = uri;
        this.noConnection = "there is no connection to " + address(uri);
        this.client = RedisClient.create(uri);
        client.setOptions(options());
    }

    /** The options of its connections: nothing that was under way when a connection was lost is sent again. */
    private static ClientOptions options() {
        return ClientOptions.builder()
            .autoReconnect(true)
            .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
            .replayFilter(command -> true)
            .requestQueueSize(4096)
            .socketOptions(SocketOptions.builder().connectTimeout(CONNECT).build())
            .timeoutOptions(TimeoutOptions.create())
            .build();
    }

    /**
     * Opens a port, and waits for its connection: as long as Redis is neither there nor refuses it, for 5 s at most. Redis need
     * not answer yet: it is tried again until it does.
     *
     * @param uri where Redis is, as {@code redis://HOST:PORT/DATABASE}, {@code rediss://..} or {@code redis-sentinel://..}
     * @return the port, which a gate closes
     */
    public static LettucePort connect(String uri) {
        return connect(RedisURI.create(uri));
    }

    /**
     * Opens a port, and waits for its connection: as long as Redis is neither there nor refuses it, for 5 s at most. Redis need
     * not answer yet: it is tried again until it does.
     *
     * @param uri where Redis is, with credentials and the like
     * @return the port, which a gate closes
     * @throws IllegalStateException if Lettuce is older than 7: it sends calls again, which would charge twice
     */
    public static LettucePort connect(RedisURI uri) {
        String version = LettuceVersion.getVersion();
        if (version.matches("[1-6]\\..*")) {
            throw new IllegalStateException("Lettuce " + version + " sends calls again; 7 or later is needed");
        }
        LettucePort port = new LettucePort(uri);
        if (!port.awaitConnection()) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, port.noConnection + " yet");
        }
        return port;
    }

    /** {@return whether there is a connection now} */
    private boolean awaitConnection() {
        long until = System.nanoTime() + AWAIT_NANOS;
        boolean refused = false;
        while (!refused && System.nanoTime() < until) {
            try {
                tryAgain().get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
                return true;
            } catch (ExecutionException e) {
                refused = isRefused(e);
                LockSupport.parkNanos(refused ? 0 : TRY_AGAIN_NANOS);
            } catch (Failure e) {
                LockSupport.parkNanos(TRY_AGAIN_NANOS);
            } catch (TimeoutException e) {
                return false;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
        return false;
    }

    // While the first classes are loaded a connection may take longer than its time; that is tried again.
    private static boolean isRefused(Throwable problem) {
        boolean refused = false;
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            refused |= cause instanceof ConnectException && !(cause instanceof ConnectTimeoutException);
        }
        return refused;
    }

    private static String address(RedisURI uri) {
        RedisURI first = uri.getSentinels().isEmpty() ? uri : uri.getSentinels().get(0);
        return first.getSocket() == null ? first.getHost() + ":" + first.getPort() : first.getSocket();
    }

    /** {@return the connection; while the first is being made, calls wait for it} */
    private StatefulRedisConnection<byte[], byte[]> connection(long timeoutNanos) throws Failure, InterruptedException {
        CompletableFuture<StatefulRedisConnection<byte[], byte[]>> made = attempt;
        if (made == null || made.isCompletedExceptionally()) {
            made = tryAgain();
        }
        try {
            return made.get(timeoutNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            throw new Failure(noConnection, false, true);
        } catch (ExecutionException e) {
            throw new Failure(noConnection, false, false);
        }
    }

    private CompletableFuture<StatefulRedisConnection<byte[], byte[]>> tryAgain() throws Failure {
        connecting.lock();
        try {
            boolean failed = attempt == null || attempt.isCompletedExceptionally();
            if (failed && (closed || System.nanoTime() - triedAt < TRY_AGAIN_NANOS)) {
                throw new Failure(noConnection, false, false);
            }
            if (failed) {
                triedAt = System.nanoTime();
                attempt = client.connectAsync(ByteArrayCodec.INSTANCE, uri).toCompletableFuture();
                attempt.thenRun(this::listen);
            }
            return attempt;
        } catch (RedisException e) {
            throw new Failure(noConnection, false, false);
        } finally {
            connecting.unlock();
        }
    }

    @Override
    public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (int place = 1; place < command.length; place++) {
            args.add(command[place]);
        }
        AsyncCommand<byte[], byte[], Object> sent =
            new AsyncCommand<>(new Command<>(new Name(command[0]), new AnyOutput(), args));
        long until = System.nanoTime() + timeoutNanos;
        StatefulRedisConnection<byte[], byte[]> made = connection(timeoutNanos);
        if (!made.isOpen()) {
            throw new Failure(noConnection, false, false);
        }
        try {
            made.dispatch(sent);
            return sent.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            // Not cancelled: a command that is on its way still has a reply, which Lettuce has to read.
            throw new Failure("the deadline passed", true, true);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RedisCommandExecutionException refused) {
                return new ReplyError(refused.getMessage());
            }
            throw lost(e.getCause());
        } catch (RedisException e) {
            throw lost(e);
        }
    }

    private Failure lost(Throwable cause) {
        String text = String.valueOf(cause.getMessage());
        boolean rejected = text.contains("Commands are rejected") || text.contains("queue size exceeded");
        return new Failure(rejected ? noConnection : "the connection was lost", !rejected, false);
    }

    private record Name(byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return new String(bytes, StandardCharsets.US_ASCII);
        }
    }

    @Override
    public void subscribe(String channel, Consumer<String> listener) {
        connecting.lock();
        try {
            subscription = new Subscription(channel, listener);
        } finally {
            connecting.unlock();
        }
        CompletableFuture<?> made = attempt;
        if (made != null && made.isDone() && !made.isCompletedExceptionally()) {
            listen();
        }
    }

    // Lettuce subscribes again by itself when the connection comes back.
    private void listen() {
        connecting.lock();
        try {
            if (subscription == null || listening || closed) {
                return;
            }
            listening = true;
            Subscription wanted = subscription;
            client.connectPubSubAsync(ByteArrayCodec.INSTANCE, uri).thenAccept(made -> listen(made, wanted));
        } finally {
            connecting.unlock();
        }
    }

    private static void listen(StatefulRedisPubSubConnection<byte[], byte[]> made, Subscription wanted) {
        made.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(byte[] channel, byte[] message) {
                wanted.listener().accept(new String(message, StandardCharsets.UTF_8));
            }

            @Override
            public void subscribed(byte[] channel, long count) {
                wanted.listener().accept("");
            }
        });
        made.async().subscribe(wanted.channel().getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void close() {
        closed = true;
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
    }
}
