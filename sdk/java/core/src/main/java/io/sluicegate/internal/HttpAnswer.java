package io.sluicegate.internal;

import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.HttpFields;
import io.sluicegate.Overflow;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * The answer to a request that does not go on.
 *
 * @param status its status
 * @param fields of its header
 * @param body its body
 */
public record HttpAnswer(int status, Map<String, String> fields, byte[] body) {
    /** To a request with two fields that the key names: a proxy may have added the true one behind that of the client. */
    public static final HttpAnswer BAD_REQUEST = problem(400, Map.of(),
        Json.write(Json.object("type", "about:blank", "title", "Bad Request", "status", 400)));
    /** The answer to a request without a decision; the next attempt may get one. */
    public static final HttpAnswer UNAVAILABLE = problem(503, Map.of("Retry-After", "1"), Json.write(Json.object(
        "type", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title", "Request cannot be satisfied due to temporary server capacity constraints", "status", 503, "detail", "retry in 1 s")));
    private static final Set<ErrorCode> NOBODY_DECIDED =
        Set.of(ErrorCode.NOT_CHARGED, ErrorCode.PERHAPS_CHARGED, ErrorCode.INTERRUPTED, ErrorCode.SERVER);

    /** {@return the answer to a refusal: the response of its policy, or a problem} */
    public static HttpAnswer of(Decision refusal) {
        Map<String, String> fields = HttpFields.of(refusal);
        if (refusal.overflow() instanceof Overflow.Response response) {
            fields.putAll(response.headers());
            return new HttpAnswer(response.status(), fields, response.body().getBytes(StandardCharsets.UTF_8));
        }
        return problem(HttpFields.status(refusal), fields, HttpFields.problem(refusal));
    }

    private static HttpAnswer problem(int status, Map<String, String> fields, String problem) {
        Map<String, String> all = new HashMap<>(fields);
        all.put("Content-Type", "application/problem+json");
        return new HttpAnswer(status, all, problem.getBytes(StandardCharsets.UTF_8));
    }

    /** {@return whether this was an outage; anything else is a mistake of the program} */
    public static boolean isUnavailable(Throwable problem) {
        return problem instanceof SluicegateException known && NOBODY_DECIDED.contains(known.code());
    }
}
