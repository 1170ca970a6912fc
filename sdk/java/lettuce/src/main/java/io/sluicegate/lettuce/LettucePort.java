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
import io.lettuce.core.event.Event;
import io.lettuce.core.event.connection.ReconnectFailedEvent;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.Delay;
import io.sluicegate.AsyncRedisPort;
import io.sluicegate.internal.Causes;
import java.lang.module.ModuleDescriptor;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import reactor.core.Disposable;

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
    private final Disposable reconnects;
    private final ReentrantLock connecting = new ReentrantLock();
    private final ReentrantLock asking = new ReentrantLock();
    private volatile CompletableFuture<Line> attempt;
    /** Why the last attempt failed; null if it did not. */
    private volatile String problem;
    private final AtomicBoolean listening = new AtomicBoolean();
    private volatile boolean closed;
    private volatile long triedAt = System.nanoTime() - TRY_AGAIN_NANOS;
    private volatile Subscription subscription;
    private volatile StatefulRedisPubSubConnection<byte[], byte[]> pubSub;

    private record Subscription(String channel, Consumer<String> listener) {}

    private LettucePort(RedisClient client, RedisURI uri, boolean ownsClient) {
        this.client = client;
        this.uri = uri;
        this.ownsClient = ownsClient;
        // A connection that was lost is made again by Lettuce, which tells why it is not in this way only.
        this.reconnects = client.getResources().eventBus().get().subscribe(this::hear);
    }

    private void hear(Event event) {
        if (event instanceof ReconnectFailedEvent failed && isOfThis(failed)) {
            problem = Problems.text(failed.getCause(), problem);
        }
    }

    /** {@return whether it is about this Redis: nodes of a cluster share a client} */
    private boolean isOfThis(ReconnectFailedEvent failed) {
        return ownsClient || failed.remoteAddress() instanceof InetSocketAddress at && address(uri).equals(at.getHostString() + ":" + at.getPort());
    }

    @Override
    public String address() {
        return address(uri);
    }

    /** {@return where there is no connection to, and why not, without credentials} */
    private String noConnection() {
        String lastProblem = problem;
        return "there is no connection to " + address(uri) + (lastProblem == null ? "" : ": " + lastProblem);
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
     * @param uri where Redis is, as {@code redis://HOST:PORT/DATABASE}, {@code rediss://..} or {@code redis-sentinel://..}; behind it the
     *     parameters of Lettuce, such as {@code ?clientName=shop}
     * @return the port, which a gate closes
     * @throws IllegalArgumentException if it is no such address, or has an unknown parameter; the message has no password
     */
    public static LettucePort connect(String uri) {
        return connect(Addresses.parse(uri));
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
            System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING,
                "not yet connected: " + port.noConnection() + "; it is tried again until there is one");
        }
        return port;
    }

    /** {@return whether there is a connection now} */
    boolean isConnected() {
        Line current = line();
        return current != null && current.isOpen();
    }

    /** {@return the connection that was made, or null} */
    private Line line() {
        CompletableFuture<Line> connecting = attempt;
        return connecting != null && connecting.isDone() && !connecting.isCompletedExceptionally() ? connecting.join() : null;
    }

    /** {@return whether there is a connection, for which it waits unless Redis refuses it} */
    boolean awaitConnection(long until) {
        boolean refused = false;
        while (!refused && System.nanoTime() < until) {
            try {
                tryAgain().get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
                return true;
            } catch (ExecutionException e) {
                refused = Problems.isFinal(e);
                LockSupport.parkNanos(refused ? 0 : TRY_AGAIN_NANOS);
            } catch (Failure e) {
                LockSupport.parkNanos(TRY_AGAIN_NANOS);
            } catch (TimeoutException e) {
                problem = problem == null ? Causes.SILENT + (uri.isSsl() ? " to TLS" : "") : problem;
                return false;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
        return false;
    }

    static String address(RedisURI uri) {
        RedisURI first = uri.getSentinels().isEmpty() ? uri : uri.getSentinels().get(0);
        return first.getSocket() == null ? first.getHost() + ":" + first.getPort() : first.getSocket();
    }

    private CompletableFuture<Line> tryAgain() throws Failure {
        connecting.lock();
        try {
            boolean failed = attempt == null || attempt.isCompletedExceptionally();
            if (failed && (closed || System.nanoTime() - triedAt < TRY_AGAIN_NANOS)) {
                throw new Failure(noConnection(), false, false);
            }
            if (failed) {
                triedAt = System.nanoTime();
                attempt = client.connectAsync(ByteArrayCodec.INSTANCE, uri).toCompletableFuture().handle(this::line);
                attempt.thenRun(this::listen);
            }
            return attempt;
        } catch (RedisException e) {
            problem = Problems.text(e, problem);
            throw new Failure(noConnection(), false, false);
        } finally {
            connecting.unlock();
        }
    }

    private Line line(StatefulRedisConnection<byte[], byte[]> connection, Throwable failure) {
        problem = failure == null ? null : Problems.text(failure, problem);
        if (failure != null) {
            throw new CompletionException(failure);
        }
        return new Line(connection);
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
        sending.begin();
        return sending;
    }

    /** A command: it waits for a connection, and for a reply that is late, goes out, and is answered or too late. */
    final class Sending extends Reply {
        private final boolean asks;
        private final AsyncCommand<byte[], byte[], Object> command;
        private Line line;
        private boolean isSent;
        private boolean isOver;
        /** True if nothing else was under way when it went out. The line guards these. */
        boolean isAlone;
        boolean isLate;
        boolean isAnswered;

        Sending(boolean asks, AsyncCommand<byte[], byte[], Object> command) {
            this.asks = asks;
            this.command = command;
        }

        /** Goes out over the connection, as soon as there is one. */
        void begin() {
            try {
                CompletableFuture<Line> connecting = attempt;
                CompletableFuture<Line> over = connecting == null || connecting.isCompletedExceptionally() ? tryAgain() : connecting;
                if (over.isDone()) {
                    dispatch(over.isCompletedExceptionally() ? null : over.join());
                } else if (System.nanoTime() - triedAt > AWAIT_NANOS) {
                    // What takes a connection and says nothing for so long is no Redis.
                    dispatch(null);
                } else {
                    over.whenComplete((connected, failure) -> dispatch(connected));
                }
            } catch (Failure e) {
                completeExceptionally(e);
            }
        }

        /** Goes out now, unless it has to wait. */
        void dispatch(Line connected) {
            if (connected == null || !connected.isOpen()) {
                completeExceptionally(new Failure(noConnection(), false, false));
                return;
            }
            switch (enter(connected)) {
                case GOES -> send(connected);
                case GONE -> begin();
                case WAITS -> { }
            }
        }

        private synchronized Line.Place enter(Line connected) {
            if (isOver || isDone()) {
                return Line.Place.WAITS;
            }
            line = connected;
            Line.Place place = connected.enter(this);
            isSent = place == Line.Place.GOES;
            return place;
        }

        private void send(Line connected) {
            command.whenComplete((reply, failure) -> answered(connected, reply, failure));
            try {
                if (asks) {
                    dispatchAsking(connected.connection(), command);
                } else {
                    connected.connection().dispatch(command);
                }
            } catch (RedisException e) {
                command.completeExceptionally(e);
            }
        }

        private void answered(Line connected, Object reply, Throwable failure) {
            boolean isReply = failure == null || failure instanceof RedisCommandExecutionException;
            List<Sending> waiting = connected.ended(this, isReply);
            if (isReply && problem != null) {
                problem = null;
            }
            if (failure == null) {
                complete(reply);
            } else if (isReply) {
                complete(new ReplyError(failure.getMessage()));
            } else {
                completeExceptionally(lost(failure));
            }
            waiting.forEach(each -> each.dispatch(connected));
        }

        @Override
        void expire() {
            Failure late = late();
            if (late != null) {
                completeExceptionally(late);
            }
        }

        private synchronized Failure late() {
            if (isOver || isDone()) {
                return null;
            }
            isOver = true;
            if (line == null) {
                // One that was never made is silent.
                return new Failure(noConnection(), false, false);
            }
            Signs signs = line.late(this, isSent);
            if (signs == null) {
                // The reply is there, and completes it.
                return null;
            }
            if (isSent) {
                // Not cancelled: a command that is on its way still has a reply, which Lettuce has to read.
                closeIfLate(line, command, true);
            }
            return new Failure("the deadline passed", isSent, signs);
        }
    }

    /** Closes the connection, and makes another, unless the reply to a command that is late comes soon. */
    private void closeIfLate(Line line, AsyncCommand<byte[], byte[], Object> command, boolean isFirst) {
        long due = System.nanoTime() + LATE_MAX_NANOS;
        CompletableFuture.delayedExecutor(LATE_MAX_NANOS, TimeUnit.NANOSECONDS).execute(() -> {
            boolean stoodStill = isFirst && System.nanoTime() - due > LATE_MAX_NANOS;
            if (!command.isDone() && stoodStill) {
                // What is late is this process, which may have the reply already.
                closeIfLate(line, command, false);
            } else if (!command.isDone()) {
                leave(line);
            }
        });
    }

    private void leave(Line line) {
        connecting.lock();
        try {
            if (line() == line) {
                attempt = null;
                problem = "a reply was " + TimeUnit.NANOSECONDS.toMillis(LATE_MAX_NANOS) + " ms late, so the connection is made anew";
            }
        } finally {
            connecting.unlock();
        }
        List<Sending> waiting = line.leave();
        line.connection().closeAsync();
        waiting.forEach(Sending::begin);
    }

    private void dispatchAsking(StatefulRedisConnection<byte[], byte[]> connection, AsyncCommand<byte[], byte[], Object> sent) {
        asking.lock();
        try {
            connection.dispatch(of(ASKING));
            connection.dispatch(sent);
        } finally {
            asking.unlock();
        }
    }

    private Failure lost(Throwable cause) {
        String text = String.valueOf(cause.getMessage());
        boolean rejected = text.contains("Commands are rejected") || text.contains("queue size exceeded");
        if (rejected && problem == null) {
            problem = "it was lost, and is being made again";
        }
        return new Failure(rejected ? noConnection() : "the connection to " + address(uri) + " was lost", !rejected, false);
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
        if (line() != null) {
            listen();
        }
    }

    // Lettuce subscribes again by itself when the connection comes back.
    private void listen() {
        Subscription wanted = subscription;
        if (wanted == null || closed || !listening.compareAndSet(false, true)) {
            return;
        }
        client.connectPubSubAsync(ByteArrayCodec.INSTANCE, uri).whenComplete((connection, problem) -> {
            if (problem == null) {
                pubSub = connection;
                listen(connection, wanted);
            } else {
                listening.set(false);
                CompletableFuture.delayedExecutor(TRY_AGAIN_NANOS, TimeUnit.NANOSECONDS).execute(this::listen);
            }
        });
    }

    /** {@return whether the channel is listened to now} */
    boolean isListening() {
        StatefulRedisPubSubConnection<byte[], byte[]> current = pubSub;
        return current != null && current.isOpen();
    }

    private static void listen(StatefulRedisPubSubConnection<byte[], byte[]> connection, Subscription wanted) {
        connection.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(byte[] channel, byte[] message) {
                wanted.listener().accept(new String(message, StandardCharsets.UTF_8));
            }

            @Override
            public void subscribed(byte[] channel, long count) {
                wanted.listener().accept("");
            }
        });
        connection.async().subscribe(wanted.channel().getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void close() {
        closed = true;
        reconnects.dispose();
        if (ownsClient) {
            shutdown(client);
            return;
        }
        CompletableFuture<Line> connecting = attempt;
        if (connecting != null) {
            connecting.thenAccept(line -> line.connection().closeAsync());
        }
        StatefulRedisPubSubConnection<byte[], byte[]> current = pubSub;
        if (current != null) {
            current.closeAsync();
        }
    }
}
