package io.sluicegate.lettuce;

import io.lettuce.core.RedisCommandExecutionException;
import io.netty.channel.ConnectTimeoutException;
import io.sluicegate.internal.Causes;
import java.net.ConnectException;
import java.net.UnknownHostException;
import javax.net.ssl.SSLException;

/** Why there is no connection. */
final class Problems {

    /** The beginning of the text about a reply that is none of Redis; its byte follows. */
    private static final String FIRST_BYTE = "Invalid first byte: ";
    private static final String TLS_ALERT = "21 ";

    private Problems() {}

    /**
     * {@return whether it would be the same a moment later} While the first classes are loaded a connection may take longer than its time;
     * that is tried again.
     */
    static boolean isFinal(Throwable problem) {
        return Causes.chain(problem).anyMatch(cause -> {
            boolean isRefused = cause instanceof ConnectException && !(cause instanceof ConnectTimeoutException);
            return isRefused || cause instanceof UnknownHostException || cause instanceof SSLException
                || cause instanceof RedisCommandExecutionException && !String.valueOf(cause.getMessage()).startsWith("LOADING");
        });
    }

    /**
     * {@return the cause, in the words of a user}
     *
     * @param before the cause of the attempt before; it stays where this one has less, as attempts may end in other ways for one reason
     */
    static String text(Throwable problem, String before) {
        String description = Causes.knownCause(problem, Problems::lettuceCause);
        if (description != null || before != null) {
            return description != null ? description : before;
        }
        String text = Causes.text(problem, Problems::lettuceCause);
        return text.matches("(?i)connection (reset|closed).*") ? "it ends the connection at once, as a Redis that expects TLS does" : text;
    }

    private static String lettuceCause(Throwable cause) {
        if (cause instanceof RedisCommandExecutionException) {
            return Causes.redisError(cause);
        }
        String text = String.valueOf(cause.getMessage());
        if (text.startsWith(FIRST_BYTE)) {
            return text.startsWith(FIRST_BYTE + TLS_ALERT) ? "it expects TLS, as rediss:// has" : "it answers, but not as Redis does";
        }
        return cause instanceof ConnectTimeoutException ? Causes.SILENT : null;
    }
}
