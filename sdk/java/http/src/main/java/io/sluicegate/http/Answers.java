package io.sluicegate.http;

import io.sluicegate.Charged;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import io.sluicegate.Quota;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.Decided;
import io.sluicegate.internal.Texts;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads the answers of a server: decisions, and problems. */
final class Answers {
    private static final Pattern QUOTA = Pattern.compile("\"([a-z0-9._-]{1,128})\";q=([0-9]{1,16})(?:;w=([0-9]{1,10}))?(;qu=\"concurrent-requests\")?");

    /** The largest number of an answer, which every JSON reader has exactly. */
    private static final long NUMBER_MAX = 1L << 53;
    /** The largest status of HTTP. */
    static final int STATUS_MAX = 999;

    private Answers() {}

    static Decision decision(String policy, Map<?, ?> fields, String policyField) {
        Object mode = fields.get("mode");
        long heldUs = fields.containsKey("held_us") ? number(fields, "held_us") : 0;
        return new Decided(bool(fields, "allowed"), number(fields, "granted"), Math.max(number(fields, "wait_us") - heldUs, 0),
            number(fields, "limit"), number(fields, "remaining"), retryAfterUs(fields), number(fields, "reset_after_us"), policy,
            text(fields, "rule"), quotas(policyField), mode == null ? Mode.STORE : Texts.word(text(fields, "mode"), Mode.values()).orElse(Mode.STORE), overflow(fields), heldUs);
    }

    static long retryAfterUs(Map<?, ?> fields) {
        boolean isNever = fields.containsKey("retry_after_us") && fields.get("retry_after_us") == null;
        return isNever ? Decision.NEVER : number(fields, "retry_after_us");
    }

    private static List<Quota> quotas(String field) {
        List<Quota> quotas = new ArrayList<>();
        Matcher matcher = QUOTA.matcher(field);
        while (matcher.find()) {
            long windowUs = matcher.group(3) == null ? 0 : Long.parseLong(matcher.group(3)) * 1_000_000;
            quotas.add(new Quota(matcher.group(1), Long.parseLong(matcher.group(2)), windowUs, matcher.group(4) != null));
        }
        return List.copyOf(quotas);
    }

    // What lacks or has another shape is an exception that `HttpTransport.decided` knows.

    static boolean bool(Map<?, ?> fields, String name) {
        return (Boolean) fields.get(name);
    }

    static String text(Map<?, ?> fields, String name) {
        return Objects.requireNonNull((String) fields.get(name));
    }

    static long number(Map<?, ?> fields, String name) {
        return number(fields, name, NUMBER_MAX);
    }

    static long number(Map<?, ?> fields, String name, long most) {
        long number = (Long) fields.get(name);
        if (number < 0 || number > most) {
            throw new NumberFormatException(name);
        }
        return number;
    }

    private static Overflow overflow(Map<?, ?> fields) {
        Object kind = fields.get("overflow");
        if ("shadow".equals(kind)) {
            return new Overflow.Shadow();
        }
        if (fields.get("target") instanceof String target) {
            return new Overflow.Divert(target);
        }
        if (fields.get("tag") instanceof String tag) {
            return new Overflow.Tag(tag);
        }
        if (fields.get("response") instanceof Map<?, ?> response) {
            Map<String, String> headers = new HashMap<>();
            if (response.get("headers") instanceof Map<?, ?> fieldsByName) {
                fieldsByName.forEach((name, value) -> headers.put((String) name, String.valueOf(value)));
            }
            return new Overflow.Response((int) number(response, "status", STATUS_MAX), headers, text(response, "body"));
        }
        return null;
    }

    /** {@return the exception that a problem stands for} */
    static SluicegateException problem(Operation operation, int status, Map<?, ?> fields) {
        Charged charged = charged(fields);
        SluicegateException knownProblem = knownProblem(operation, status, fields, charged);
        return new SluicegateException(knownProblem.code(), knownProblem.getMessage(), charged, knownProblem.status());
    }

    /** {@return the charge that a problem reports; a server of before that, or a proxy, reports none} */
    private static Charged charged(Map<?, ?> fields) {
        return "no".equals(fields.get("charged")) ? Charged.NO : "yes".equals(fields.get("charged")) ? Charged.YES : Charged.UNKNOWN;
    }

    private static SluicegateException knownProblem(Operation operation, int status, Map<?, ?> fields, Charged charged) {
        String type = String.valueOf(fields.get("type"));
        String detail = fields.get("detail") instanceof String text ? Texts.truncate(text) : "no detail";
        if (type.endsWith(":unknown-policy") && operation.policy() != null) {
            return ErrorCode.UNKNOWN_POLICY.with(Map.of("policy", operation.policy()));
        }
        if (type.endsWith(":unknown-policy")) {
            return new SluicegateException(ErrorCode.UNKNOWN_POLICY, detail);
        }
        if (type.endsWith(":not-configured")) {
            return new SluicegateException(ErrorCode.POLICY_NOT_AVAILABLE, detail);
        }
        if (type.endsWith(":no-store")) {
            return new SluicegateException(charged == Charged.NO ? ErrorCode.NOT_CHARGED : ErrorCode.PERHAPS_CHARGED, detail);
        }
        if (status == 400 && detail.startsWith("op: ")) {
            return operation.policy() == null ? new SluicegateException(ErrorCode.UNSUPPORTED_VERB, detail)
                : ErrorCode.UNSUPPORTED_VERB.with(Map.of("verb", operation.verb(), "policy", operation.policy()));
        }
        return ErrorCode.SERVER.with(Map.of("status", status, "detail", detail));
    }

    /** The request that a problem is about; without a policy the server names it. */
    record Operation(String verb, String policy) {}
}
