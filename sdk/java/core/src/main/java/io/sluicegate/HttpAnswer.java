package io.sluicegate;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The answer of an HTTP service to a request that does not go on, as the filters give it. A request that passes has the fields of
 * {@link HttpFields}.
 *
 * @param status its status
 * @param fields of its header
 * @param body its body
 */
public record HttpAnswer(int status, Map<String, String> fields, String body) {
    private static final String PROBLEM = "application/problem+json";
    private static final String TYPES = "https://iana.org/assignments/http-problem-types#";
    private static final Set<ErrorCode> NOBODY_DECIDED = Set.of(ErrorCode.NOT_CHARGED, ErrorCode.PERHAPS_CHARGED, ErrorCode.INTERRUPTED,
        ErrorCode.SERVER, ErrorCode.NOTHING_PUBLISHED);
    private static final Set<ErrorCode> OF_THE_REQUEST = Set.of(ErrorCode.KEY_EMPTY, ErrorCode.KEY_LENGTH, ErrorCode.KEY_TEXT);

    /**
     * The answer to a request without the field that is its key, or with two of them: a proxy may have added the true one behind that of
     * the client. It has status 400.
     */
    public static final HttpAnswer BAD_REQUEST = badRequest("key: is missing, or is given more than once");
    private static final HttpAnswer WITHOUT_KEY = badRequest("key: is missing");
    private static final HttpAnswer MISTAKE =
        problem(500, Map.of(), Json.object("type", "about:blank", "title", "Internal Server Error", "status", 500));

    /**
     * Makes an answer.
     *
     * @param status its status
     * @param fields of its header, which are copied
     * @param body its body
     */
    public HttpAnswer {
        fields = Map.copyOf(fields);
    }

    /**
     * The answer to a request of which no key can be made, with status 400.
     *
     * @param detail what is wrong with it, such as {@code header `X-Tenant`: is missing}
     * @return the answer
     */
    public static HttpAnswer badRequest(String detail) {
        return problem(400, Map.of(), Json.object("type", "about:blank", "title", "Bad Request", "status", 400, "detail", detail));
    }

    /**
     * The answer to a refusal: the response of its policy, or a problem (RFC 9457) without the key. Its status is 503 if nobody
     * decided by the limit ({@link Mode#DENY}, {@link Mode#SHED}), else 429.
     *
     * @param refusal the refusal
     * @return the answer
     * @throws IllegalArgumentException if the decision allows
     */
    public static HttpAnswer of(Decision refusal) {
        if (refusal.allowed()) {
            throw new IllegalArgumentException("a request that is allowed goes on");
        }
        Map<String, String> fields = HttpFields.of(refusal);
        if (refusal.overflow() instanceof Overflow.Response response) {
            fields.putAll(response.headers());
            return new HttpAnswer(response.status(), fields, response.body());
        }
        String detail = refusal.retryAfterUs() == Decision.NEVER
            ? "the cost exceeds the limit of " + refusal.limit()
            : "retry in " + fields.get("Retry-After") + " s";
        if (refusal.mode() == Mode.DENY || refusal.mode() == Mode.SHED) {
            return problem(503, fields, unavailable(detail));
        }
        return problem(429, fields, Json.object("type", TYPES + "quota-exceeded",
            "title", "Request cannot be satisfied as assigned quota has been exceeded", "status", 429, "detail", detail,
            "violated-policies", List.of(refusal.rule())));
    }

    /**
     * The answer if there is no decision. It is a {@link #badRequest} if the request has no key that can be one, 503 and a problem if Redis
     * or the server did not decide (the next attempt may have a decision), and 500 for a mistake of the program, such as an unknown policy.
     * It names no policy: what is wrong is for the log.
     *
     * @param problem why there is no decision
     * @return the answer
     */
    public static HttpAnswer of(SluicegateException problem) {
        if (OF_THE_REQUEST.contains(problem.code())) {
            return problem.code() == ErrorCode.KEY_EMPTY ? WITHOUT_KEY : badRequest(problem.getMessage());
        }
        return NOBODY_DECIDED.contains(problem.code()) ? problem(503, Map.of("Retry-After", "1"), unavailable("retry in 1 s")) : MISTAKE;
    }

    /**
     * Returns this answer with another status, which a problem has as its member {@code status}, too.
     *
     * @param status the status
     * @return the answer
     */
    public HttpAnswer with(int status) {
        return new HttpAnswer(status, fields, PROBLEM.equals(fields.get("Content-Type")) ? withStatus(body, status) : body);
    }

    private static String withStatus(String problem, int status) {
        try {
            if (Json.read(problem) instanceof Map<?, ?> members) {
                Map<Object, Object> all = new LinkedHashMap<>(members);
                all.put("status", status);
                return Json.write(all);
            }
        } catch (JsonException e) {
            // A program may give any text as a problem.
        }
        return problem;
    }

    /**
     * Returns this answer with another status and body; its fields but {@code Content-Type} stay.
     *
     * @param status the status
     * @param contentType of the body
     * @param body the body
     * @return the answer
     */
    public HttpAnswer with(int status, String contentType, String body) {
        Map<String, String> all = new HashMap<>(fields);
        all.put("Content-Type", contentType);
        return new HttpAnswer(status, all, body);
    }

    private static Map<String, Object> unavailable(String detail) {
        return Json.object("type", TYPES + "temporary-reduced-capacity",
            "title", "Request cannot be satisfied due to temporary server capacity constraints", "status", 503, "detail", detail);
    }

    private static HttpAnswer problem(int status, Map<String, String> fields, Map<String, Object> problem) {
        Map<String, String> all = new HashMap<>(fields);
        all.put("Content-Type", PROBLEM);
        return new HttpAnswer(status, all, Json.write(problem));
    }
}
