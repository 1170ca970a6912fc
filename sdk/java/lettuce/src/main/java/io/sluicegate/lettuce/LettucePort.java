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
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.Delay;
import io.netty.channel.ConnectTimeoutException;
import io.sluicegate.AsyncRedisPort;
import java.lang.module.ModuleDescriptor;
import java.net.ConnectException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Reaches Redis through Lettuce, with one connection that all threads share and one that listens. The connections are its
 * own, since a connection with Lettuce's defaults sends a command again after it was lost, and would charge twice.
 */
public final class LettucePort implements AsyncRedisPort {
    private static final Duration CONNECT = Duration.ofMillis(100);
    /** Time between two attempts at a connection that could not be made at first. */
    private static final long TRY_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    /** Time that {@code connect} waits for the connection: longer than a cold JVM needs, also where there is much to do. */
    static final long AWAIT_NANOS = TimeUnit.SECONDS.toNanos(5);

    /** Longest time between two attempts at a connection that was lost: a Redis that was long away is used soon after it is back. */
    private static final Duration RECONNECT_MAX = Duration.ofMillis(500);
    /**
     * Time that a reply may be late until its connection is closed: longer than a pause of a healthy JVM, and as long as a
     * connection that could not be made has to wait.
     */
    private static final long LATE_MAX_NANOS = TRY_AGAIN_NANOS;
    private static final byte[] ASKING = "ASKING".getBytes(StandardCharsets.US_ASCII);

    private final RedisClient client;
    private final RedisURI uri;
    /** A node of a cluster leaves it open. */
    private final boolean ownsClient;
    /** Says where there is none, without credentials. */
    private final String noConnection;
    private final ReentrantLock connecting = new ReentrantLock();
    private final ReentrantLock asking = new ReentrantLock();
    private volatile CompletableFuture<StatefulRedisConnection<byte[], byte[]>> attempt;
    /** Number of commands of this connection that have passed their deadline, whose replies may still come. */
    private volatile AtomicInteger late = new AtomicInteger();
    private final AtomicBoolean listening = new AtomicBoolean();
    private volatile boolean closed;
    private long triedAt = System.nanoTime() - TRY_AGAIN_NANOS;
    private volatile Subscription subscription;
    private volatile StatefulRedisPubSubConnection<byte[], byte[]> heard;

    private record Subscription(String channel, Consumer<String> listener) {}

    private LettucePort(RedisClient client, RedisURI uri, boolean ownsClient) {
        this.client = client;
        this.uri = uri;
        this.ownsClient = ownsClient;
        this.noConnection = "there is no connection to " + address(uri);
    }

    /** {@return a node of a cluster, to which a connection is being made; it leaves the client open} */
    static LettucePort node(RedisClient client, RedisURI uri) {
        LettucePort node = new LettucePort(client, uri, false);
        try {
            node.tryAgain();
        } catch (Failure e) {
            // It is tried again when it is asked.
        }
        return node;
    }

    /**
     * {@return a client whose connections send nothing again}
     *
     * @throws IllegalStateException if Lettuce is older than 7: it sends calls again, which would charge twice
     */
    static RedisClient client(RedisURI uri) {
        String version = version();
        if (version.matches("[1-6]\\..*")) {
            throw new IllegalStateException("Lettuce " + version + " sends calls again; 7 or later is needed");
        }
        ClientResources resources = ClientResources.builder()
            .reconnectDelay(Delay.exponential(Duration.ofMillis(1), RECONNECT_MAX, 2, TimeUnit.MILLISECONDS)).build();
        RedisClient client = RedisClient.create(resources, uri);
        client.setOptions(options());
        return client;
    }

    // On the module path the package has no version, and the module has that of its file's name.
    private static String version() {
        String version = LettuceVersion.getVersion();
        ModuleDescriptor module = LettuceVersion.class.getModule().getDescriptor();
        return version != null ? version : module == null ? "" : module.rawVersion().orElse("");
    }

    static void shutdown(RedisClient client) {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(1));
        client.getResources().shutdown(0, 1, TimeUnit.SECONDS);
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
        LettucePort port = new LettucePort(client(uri), uri, true);
        if (!port.awaitConnection(System.nanoTime() + AWAIT_NANOS)) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, port.noConnection + " yet");
        }
        return port;
    }

    /** {@return whether there is a connection now} */
    boolean isConnected() {
        StatefulRedisConnection<byte[], byte[]> made = made();
        return made != null && made.isOpen();
    }

    /** {@return the connection that was made, or null} */
    private StatefulRedisConnection<byte[], byte[]> made() {
        CompletableFuture<StatefulRedisConnection<byte[], byte[]>> made = attempt;
        return made != null && made.isDone() && !made.isCompletedExceptionally() ? made.join() : null;
    }

    /** {@return whether there is a connection, for which it waits unless Redis refuses it} */
    boolean awaitConnection(long until) {
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

    static String address(RedisURI uri) {
        RedisURI first = uri.getSentinels().isEmpty() ? uri : uri.getSentinels().get(0);
        return first.getSocket() == null ? first.getHost() + ":" + first.getPort() : first.getSocket();
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

    private static AsyncCommand<byte[], byte[], Object> of(byte[]... command) {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (int place = 1; place < command.length; place++) {
            args.add(command[place]);
        }
        return new AsyncCommand<>(new Command<>(new Name(command[0]), new AnyOutput(), args));
    }

    @Override
    public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
        return begin(false, command).await(timeoutNanos);
    }

    @Override
    public CompletableFuture<Object> send(long timeoutNanos, byte[]... command) {
        return begin(false, command).within(timeoutNanos);
    }

    /**
     * Sends a command, after {@code ASKING} to a node of a cluster that a slot moves to. Then nothing else may be sent over this
     * connection: another command between the two would be taken for the one that may be executed here. While the first connection
     * is being made, commands wait for it.
     */
    Reply begin(boolean asks, byte[]... command) {
        Sending sending = new Sending(asks, of(command));
        try {
            CompletableFuture<StatefulRedisConnection<byte[], byte[]>> made = attempt;
            sending.dispatchOver(made == null || made.isCompletedExceptionally() ? tryAgain() : made);
        } catch (Failure e) {
            sending.completeExceptionally(e);
        }
        return sending;
    }

    private final class Sending extends Reply {
        private final boolean asks;
        private final AsyncCommand<byte[], byte[], Object> sent;
        private CompletableFuture<StatefulRedisConnection<byte[], byte[]>> over;

        Sending(boolean asks, AsyncCommand<byte[], byte[], Object> sent) {
            this.asks = asks;
            this.sent = sent;
        }

        void dispatchOver(CompletableFuture<StatefulRedisConnection<byte[], byte[]>> made) {
            // A copy that expires is not dispatched when the connection is there.
            over = made.isDone() ? made : made.copy();
            if (!over.isDone()) {
                over.whenComplete(this::dispatch);
            } else if (over.isCompletedExceptionally()) {
                dispatch(null, null);
            } else {
                dispatch(over.join(), null);
            }
        }

        private void dispatch(StatefulRedisConnection<byte[], byte[]> connection, Throwable problem) {
            // Replies come in the order of their commands. While one is late, nothing else is sent: if it is lost, every later
            // reply would be taken for that of an earlier command.
            if (connection == null || !connection.isOpen() || late.get() > 0) {
                completeExceptionally(new Failure(noConnection, false, problem instanceof TimeoutException));
                return;
            }
            try {
                if (asks) {
                    dispatchAsking(connection, sent);
                } else {
                    connection.dispatch(sent);
                }
                sent.whenComplete(this::answered);
            } catch (RedisException e) {
                completeExceptionally(lost(e));
            }
        }

        private void answered(Object reply, Throwable problem) {
            if (problem == null) {
                complete(reply);
            } else if (problem instanceof RedisCommandExecutionException refused) {
                complete(new ReplyError(refused.getMessage()));
            } else {
                completeExceptionally(lost(problem));
            }
        }

        @Override
        void expire() {
            if (!isDone() && !over.completeExceptionally(new TimeoutException())) {
                // Not cancelled: a command that is on its way still has a reply, which Lettuce has to read.
                awaitLate(over.join(), sent);
                completeExceptionally(new Failure("the deadline passed", true, true));
            }
        }
    }

    /** Closes the connection, and makes another, unless the reply to a command that is late comes soon. */
    private void awaitLate(StatefulRedisConnection<byte[], byte[]> made, AsyncCommand<byte[], byte[], Object> sent) {
        AtomicInteger late = this.late;
        late.incrementAndGet();
        CompletableFuture<Object> reply = sent.toCompletableFuture();
        reply.whenComplete((value, problem) -> late.decrementAndGet());
        CompletableFuture.delayedExecutor(LATE_MAX_NANOS, TimeUnit.NANOSECONDS).execute(() -> {
            if (!reply.isDone()) {
                abandon(made);
            }
        });
    }

    private void abandon(StatefulRedisConnection<byte[], byte[]> made) {
        connecting.lock();
        try {
            if (made() == made) {
                attempt = null;
                late = new AtomicInteger();
            }
        } finally {
            connecting.unlock();
        }
        made.closeAsync();
    }

    private void dispatchAsking(StatefulRedisConnection<byte[], byte[]> made, AsyncCommand<byte[], byte[], Object> sent) {
        asking.lock();
        try {
            made.dispatch(of(ASKING));
            made.dispatch(sent);
        } finally {
            asking.unlock();
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
        subscription = new Subscription(channel, listener);
        if (made() != null) {
            listen();
        }
    }

    // Lettuce subscribes again by itself when the connection comes back.
    private void listen() {
        Subscription wanted = subscription;
        if (wanted == null || closed || !listening.compareAndSet(false, true)) {
            return;
        }
        client.connectPubSubAsync(ByteArrayCodec.INSTANCE, uri).whenComplete((made, problem) -> {
            if (problem == null) {
                heard = made;
                listen(made, wanted);
            } else {
                listening.set(false);
                CompletableFuture.delayedExecutor(TRY_AGAIN_NANOS, TimeUnit.NANOSECONDS).execute(this::listen);
            }
        });
    }

    /** {@return whether the channel is listened to now} */
    boolean isListening() {
        StatefulRedisPubSubConnection<byte[], byte[]> made = heard;
        return made != null && made.isOpen();
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
        if (ownsClient) {
            shutdown(client);
            return;
        }
        CompletableFuture<StatefulRedisConnection<byte[], byte[]>> made = attempt;
        if (made != null) {
            made.thenAccept(StatefulRedisConnection::closeAsync);
        }
        StatefulRedisPubSubConnection<byte[], byte[]> subscribed = heard;
        if (subscribed != null) {
            subscribed.closeAsync();
        }
    }
}
