package io.sluicegate.internal;

import java.net.ConnectException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.channels.UnresolvedAddressException;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Stream;
import javax.net.ssl.SSLException;

/** Why there is no connection, in the words of a user. */
public final class Causes {
    /** Silence: nothing came in time. */
    public static final String SILENT = "what listens there does not answer";
    /** The longest text of a library. */
    private static final int CHARACTERS_MAX = 200;
    /** Causes inside each other that are looked through. */
    private static final int DEPTH_MAX = 10;

    private Causes() {}

    /**
     * {@return the outermost cause that is known, or else the innermost one, without credentials}
     *
     * @param problem what was thrown
     * @param describe the text of a cause that only a client recognises; null for others
     */
    public static String text(Throwable problem, Function<Throwable, String> describe) {
        String description = knownCause(problem, describe);
        if (description != null) {
            return description;
        }
        return truncate(chain(problem).map(cause -> cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage())
            .reduce("", (outer, inner) -> inner));
    }

    /** {@return the outermost cause that is known, as {@link #text}; null if none is} */
    public static String knownCause(Throwable problem, Function<Throwable, String> describe) {
        // Where several addresses of a host were tried, what became of each is suppressed.
        return chain(problem).flatMap(cause -> Stream.concat(Stream.of(cause), Stream.of(cause.getSuppressed())).limit(DEPTH_MAX))
            .map(each -> Optional.ofNullable(describe.apply(each)).orElseGet(() -> platformCause(each)))
            .filter(Objects::nonNull).findFirst().map(Causes::truncate).orElse(null);
    }

    /** {@return a problem and the causes inside it, the outermost first} */
    public static Stream<Throwable> chain(Throwable problem) {
        return Stream.iterate(problem, Objects::nonNull, Throwable::getCause).limit(DEPTH_MAX);
    }

    /** {@return the first sentence of an error of Redis, which no password is in} */
    public static String redisError(Throwable error) {
        String line = String.valueOf(error.getMessage()).lines().findFirst().orElse("an error");
        int comma = line.indexOf(", ");
        return "redis answers " + (comma < 0 ? line : line.substring(0, comma)).replaceAll("\\.$", "");
    }

    private static String platformCause(Throwable cause) {
        if (cause instanceof UnknownHostException || cause instanceof UnresolvedAddressException
            || cause instanceof ConnectException && cause.getCause() != null && "the host is not known".equals(platformCause(cause.getCause()))) {
            return "the host is not known";
        }
        if (cause instanceof SSLException) {
            return "TLS fails: " + cause.getMessage();
        }
        if (cause instanceof SocketTimeoutException) {
            return SILENT;
        }
        return cause instanceof ConnectException ? connectCause(cause) : null;
    }

    // Some clients say nothing of a connection that was refused.
    private static String connectCause(Throwable cause) {
        String reason = chain(cause).map(Throwable::getMessage).filter(Objects::nonNull).reduce("", (outer, inner) -> inner);
        return reason.isEmpty() || reason.toLowerCase(Locale.ROOT).contains("refused") ? "connection refused" : reason;
    }

    private static String truncate(String text) {
        String bare = text.replaceAll("//[^@/\\s]*@", "//***@");
        return bare.length() > CHARACTERS_MAX ? bare.substring(0, CHARACTERS_MAX) + "…" : bare;
    }
}
