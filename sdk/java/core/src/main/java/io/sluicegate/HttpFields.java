package io.sluicegate;

import io.sluicegate.internal.kernel.Numbers;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * The header fields of draft-ietf-httpapi-ratelimit-headers-10. {@code r} is rounded down, times up to whole seconds. {@link HttpAnswer}
 * has them already.
 */
public final class HttpFields {
    private static final long SECOND_US = 1_000_000;

    private HttpFields() {}

    /**
     * The header fields of a decision: {@code RateLimit-Policy}, {@code RateLimit}, and {@code Retry-After} on a refusal
     * that can pass later. Without a decision by the limit ({@link Mode#ALLOW}, {@link Mode#DENY}, {@link Mode#SHED}),
     * there are none of the three but {@code Retry-After}.
     *
     * @param decision the decision
     * @return names and values, in order
     */
    public static Map<String, String> of(Decision decision) {
        Map<String, String> fields = new LinkedHashMap<>();
        boolean isBudgetKnown = switch (decision.mode()) {
            case STORE, LEASED, REMEMBERED, LOCAL -> true;
            case ALLOW, DENY, SHED -> false;
        };
        if (isBudgetKnown) {
            boolean canRetry = !decision.allowed() && decision.retryAfterUs() != Decision.NEVER;
            long untilUs = canRetry ? decision.retryAfterUs() : decision.resetAfterUs();
            if (!decision.quotas().isEmpty()) {
                fields.put("RateLimit-Policy", decision.quotas().stream().map(HttpFields::quota).collect(Collectors.joining(", ")));
            }
            fields.put("RateLimit", "\"" + decision.rule() + "\";r=" + decision.remaining() + ";t=" + Numbers.ceilDiv(untilUs, SECOND_US));
        }
        if (!decision.allowed() && decision.retryAfterUs() != Decision.NEVER) {
            fields.put("Retry-After", Long.toString(Math.max(Numbers.ceilDiv(decision.retryAfterUs(), SECOND_US), 1)));
        }
        return fields;
    }

    // A window of less than a second is left out, as the field has whole seconds.
    private static String quota(Quota quota) {
        String window = quota.windowUs() >= SECOND_US ? ";w=" + Numbers.ceilDiv(quota.windowUs(), SECOND_US) : "";
        return "\"" + quota.rule() + "\";q=" + quota.limit() + window + (quota.concurrent() ? ";qu=\"concurrent-requests\"" : "");
    }
}
