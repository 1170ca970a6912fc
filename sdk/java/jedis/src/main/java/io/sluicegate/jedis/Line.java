package io.sluicegate.jedis;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.util.RedisInputStream;

/** A connection of which somebody else can end a call whose time is over, and no later call. */
final class Line extends Connection {
    /** No call is under way. */
    private static final long IDLE = Long.MIN_VALUE;
    /** The call was ended. */
    private static final long ENDED = Long.MAX_VALUE;

    private final AtomicLong until = new AtomicLong(IDLE);

    Line(HostAndPort address, JedisClientConfig config) {
        super(address, config);
    }

    // The greeting is read while the connection is made, by Jedis itself.
    @Override
    protected Object protocolRead(RedisInputStream in) {
        return until == null || until.get() == IDLE ? super.protocolRead(in) : Replies.read(in);
    }

    /** A call begins, which may last until then. */
    void begin(long untilNanos) {
        until.set(untilNanos);
    }

    /** The call is over; returns whether it came in time. */
    boolean end() {
        return until.getAndSet(IDLE) != ENDED;
    }

    /** Ends the connection if its call should be over. */
    void endIfLate(long nowNanos) {
        long late = until.get();
        if (late != IDLE && late != ENDED && nowNanos - late > 0 && until.compareAndSet(late, ENDED)) {
            try {
                forceDisconnect();
            } catch (IOException e) {
                System.getLogger("io.sluicegate").log(System.Logger.Level.DEBUG, "a connection was not ended", e);
            }
        }
    }
}
