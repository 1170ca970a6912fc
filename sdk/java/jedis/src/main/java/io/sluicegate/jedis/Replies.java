package io.sluicegate.jedis;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.RedisInputStream;

/** Reads replies. Memory is taken for what has come, not for what a length claims; Jedis' own reader takes it at once. */
final class Replies {
    /** Lists inside each other: no command of this SDK is answered with more than one. */
    private static final int DEPTH_MAX = 4;
    /** Elements for which room is made before they come. */
    private static final int AT_ONCE = 65_536;

    private Replies() {}

    /** {@return the next reply; one that no Redis gives is a {@link JedisConnectionException}} */
    static Object read(RedisInputStream in) {
        Object reply = read(in, 1);
        if (reply instanceof JedisDataException refused) {
            throw refused;
        }
        return reply;
    }

    private static Object read(RedisInputStream in, int depth) {
        byte kind = in.readByte();
        return switch (kind) {
            case '+' -> in.readLineBytes();
            case '-' -> new JedisDataException(new String(in.readLineBytes(), StandardCharsets.UTF_8));
            case ':' -> number(in);
            case '$' -> bytes(in, number(in));
            case '*' -> list(in, number(in), depth);
            case '_' -> nothing(in);
            default -> throw unreadable();
        };
    }

    private static JedisConnectionException unreadable() {
        return new JedisConnectionException("the reply cannot be read");
    }

    private static Object nothing(RedisInputStream in) {
        in.readLineBytes();
        return null;
    }

    private static long number(RedisInputStream in) {
        try {
            return Long.parseLong(new String(in.readLineBytes(), StandardCharsets.US_ASCII));
        } catch (NumberFormatException e) {
            throw unreadable();
        }
    }

    private static byte[] bytes(RedisInputStream in, long length) {
        if (length == -1) {
            return null;
        }
        if (length < 0 || length > Integer.MAX_VALUE) {
            throw unreadable();
        }
        byte[] bytes;
        try {
            // It takes memory as the bytes come.
            bytes = in.readNBytes((int) length);
        } catch (IOException e) {
            throw new JedisConnectionException(e);
        }
        if (bytes.length < length) {
            throw new JedisConnectionException("the connection was lost");
        }
        in.readByte();
        in.readByte();
        return bytes;
    }

    private static List<Object> list(RedisInputStream in, long length, int depth) {
        if (length == -1) {
            return null;
        }
        if (length < 0 || depth >= DEPTH_MAX) {
            throw unreadable();
        }
        List<Object> list = new ArrayList<>((int) Math.min(length, AT_ONCE));
        for (long place = 0; place < length; place++) {
            list.add(read(in, depth + 1));
        }
        return list;
    }
}
