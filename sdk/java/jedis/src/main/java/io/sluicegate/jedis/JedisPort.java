package io.sluicegate.jedis;

import io.sluicegate.RedisPort;
import java.net.SocketTimeoutException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import redis.clients.jedis.ClientSetInfoConfig;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * Reaches one Redis through a pool of Jedis' connections, each used by one thread at a time. Jedis sends a command once
 * over such a connection.
 */
public final class JedisPort implements RedisPort {
    private static final int CONNECT_MS = 100;
    /** Time that a subscription that ended waits before it begins again. */
    private static final long SUBSCRIBE_AGAIN_MS = 1000;

    private final HostAndPort address;
    private final JedisClientConfig config;
    private final Connections pool;
    private volatile boolean closed;
    private volatile Jedis listening;

    private JedisPort(HostAndPort address, JedisClientConfig config) {
        this.address = address;
        this.config = config;
        this.pool = new Connections(address, config);
    }

    /**
     * Opens a port. Redis need not answer yet.
     *
     * @param host where Redis is
     * @param port its port
     * @return the port, which a gate closes
     */
    public static JedisPort connect(String host, int port) {
        return connect(new HostAndPort(host, port), DefaultJedisClientConfig.builder().connectionTimeoutMillis(CONNECT_MS)
            .socketTimeoutMillis(CONNECT_MS).clientSetInfoConfig(ClientSetInfoConfig.DISABLED).build());
    }

    /**
     * Opens a port. Redis need not answer yet.
     *
     * @param address where Redis is
     * @param config credentials, the database and the like; its timeouts hold while a connection is made; no call waits
     *     for longer than its deadline
     * @return the port, which a gate closes
     */
    public static JedisPort connect(HostAndPort address, JedisClientConfig config) {
        return new JedisPort(address, config);
    }

    @Override
    public String address() {
        return address.toString();
    }

    private record Name(byte[] raw) implements ProtocolCommand {
        @Override
        public byte[] getRaw() {
            return raw;
        }
    }

    @Override
    public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
        long until = System.nanoTime() + timeoutNanos;
        Line connection = pool.borrow(timeoutNanos);
        boolean sent = false;
        try {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            if (leftMs < 1) {
                throw new Failure("the deadline passed", false, true);
            }
            connection.setSoTimeout((int) leftMs);
            CommandArguments args = new CommandArguments(new Name(command[0]));
            for (int place = 1; place < command.length; place++) {
                args.add(command[place]);
            }
            sent = true;
            connection.begin(until);
            connection.sendCommand(args);
            return connection.getOne();
        } catch (JedisDataException e) {
            return new ReplyError(e.getMessage());
        } catch (JedisConnectionException e) {
            connection.setBroken();
            boolean late = e.getCause() instanceof SocketTimeoutException || System.nanoTime() - until >= 0;
            if (!late) {
                pool.dropIdle();
            }
            throw new Failure(late ? "the deadline passed" : "the connection was lost", sent, late);
        } catch (RuntimeException | OutOfMemoryError | StackOverflowError e) {
            // What answers is no Redis, or sends more than there is memory for.
            connection.setBroken();
            throw new Failure("the reply cannot be read", sent, false);
        } finally {
            if (!connection.end()) {
                connection.setBroken();
            }
            pool.giveBack(connection);
        }
    }

    @Override
    public void subscribe(String channel, Consumer<String> listener) {
        Thread thread = new Thread(() -> listen(channel, listener), "sluicegate-listener");
        thread.setDaemon(true);
        thread.start();
    }

    private void listen(String channel, Consumer<String> listener) {
        JedisPubSub messages = new JedisPubSub() {
            @Override
            public void onMessage(String heardAt, String message) {
                listener.accept(message);
            }

            @Override
            public void onSubscribe(String listenedAt, int channels) {
                listener.accept("");
            }
        };
        while (!closed) {
            try (Jedis jedis = new Jedis(address, config)) {
                listening = jedis;
                jedis.getConnection().setTimeoutInfinite();
                jedis.subscribe(messages, channel);
            } catch (RuntimeException | OutOfMemoryError | StackOverflowError e) {
                // What answers may be no Redis. The next look at the policies is soon; until then it is tried again.
            }
            try {
                Thread.sleep(closed ? 0 : SUBSCRIBE_AGAIN_MS);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    @Override
    public void close() {
        closed = true;
        Jedis jedis = listening;
        if (jedis != null) {
            disconnect(jedis);
        }
        pool.close();
    }

    private static void disconnect(Jedis jedis) {
        try {
            jedis.getConnection().forceDisconnect();
        } catch (java.io.IOException e) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.DEBUG, "the subscription was not ended", e);
        }
    }
}
