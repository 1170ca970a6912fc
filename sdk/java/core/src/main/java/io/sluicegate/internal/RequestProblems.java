package io.sluicegate.internal;

import io.sluicegate.ErrorCode;
import io.sluicegate.SluicegateException;
import java.util.Set;

/** Answers to requests of which there is no decision. */
public final class RequestProblems {
    /** Of a request with two fields that the key names: a proxy may have added the true one behind that of the client. */
    public static final String BAD_REQUEST = "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400}";
    /** Of a request that nobody could decide. */
    public static final String UNAVAILABLE = "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\","
        + "\"title\":\"Request cannot be satisfied due to temporary server capacity constraints\",\"status\":503,\"detail\":\"retry in 1 s\"}";
    /** When the next attempt may have an answer, in seconds. */
    public static final String RETRY_AFTER = "1";
    private static final Set<ErrorCode> NOBODY_DECIDED =
        Set.of(ErrorCode.NOT_CHARGED, ErrorCode.PERHAPS_CHARGED, ErrorCode.INTERRUPTED, ErrorCode.SERVER);

    private RequestProblems() {}

    /** {@return whether nobody could decide; anything else is a mistake of the program} */
    public static boolean isUnavailable(Throwable problem) {
        return problem instanceof SluicegateException said && NOBODY_DECIDED.contains(said.code());
    }
}
