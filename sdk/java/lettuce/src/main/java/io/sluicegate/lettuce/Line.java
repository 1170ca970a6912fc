package io.sluicegate.lettuce;

import io.lettuce.core.api.StatefulRedisConnection;
import io.sluicegate.RedisPort.Signs;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * A connection, and what it has shown of Redis. Replies come in the order of their commands. So while one is late, nothing else is sent: if
 * it is lost, every later reply would be taken for that of an earlier command. What comes meanwhile waits here, and goes out when the reply
 * is there, or over another connection.
 */
final class Line {
    /** The outcome of a command. */
    enum Place { GOES, WAITS, GONE }

    private final StatefulRedisConnection<byte[], byte[]> connection;
    private int unanswered;
    private int late;
    private int slowAlone;
    /** A new connection counts as a reply. */
    private long lastSign = System.nanoTime();
    private boolean isLeft;
    /** As many as callers, each for its deadline at most. */
    private final Set<LettucePort.Sending> waiting = new LinkedHashSet<>();

    Line(StatefulRedisConnection<byte[], byte[]> connection) {
        this.connection = connection;
    }

    StatefulRedisConnection<byte[], byte[]> connection() {
        return connection;
    }

    boolean isOpen() {
        return connection.isOpen();
    }

    /** Says whether a command goes out now, waits until a late reply is there, or needs another connection. */
    synchronized Place enter(LettucePort.Sending sending) {
        if (isLeft) {
            return Place.GONE;
        }
        if (late > 0) {
            waiting.add(sending);
            return Place.WAITS;
        }
        sending.isAlone = unanswered == 0;
        lastSign = sending.isAlone ? System.nanoTime() : lastSign;
        unanswered++;
        return Place.GOES;
    }

    /** A command that went out is answered, or its connection was lost; returns those that may go out now. */
    synchronized List<LettucePort.Sending> ended(LettucePort.Sending sending, boolean isReply) {
        sending.isAnswered = true;
        unanswered--;
        if (isReply) {
            lastSign = System.nanoTime();
            slowAlone = sending.isLate ? slowAlone : 0;
        }
        if (!sending.isLate || --late > 0) {
            return List.of();
        }
        return takeWaiting();
    }

    /** The time of a command is over; returns what the connection has shown, or null if the reply is there. */
    synchronized Signs late(LettucePort.Sending sending, boolean isSent) {
        if (sending.isAnswered) {
            return null;
        }
        Signs signs = new Signs(System.nanoTime() - lastSign, unanswered + waiting.size(), slowAlone + (isSent && sending.isAlone ? 1 : 0));
        if (isSent) {
            sending.isLate = true;
            late++;
            slowAlone = signs.slowAlone();
        } else {
            waiting.remove(sending);
        }
        return signs;
    }

    /** Takes no more commands; returns those that need another connection. */
    synchronized List<LettucePort.Sending> leave() {
        isLeft = true;
        return takeWaiting();
    }

    private List<LettucePort.Sending> takeWaiting() {
        List<LettucePort.Sending> taken = List.copyOf(waiting);
        waiting.clear();
        return taken;
    }
}
