package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import org.springframework.util.InvalidMimeTypeException;
import org.springframework.util.MimeTypeUtils;

/**
 * The answer that an application gives to requests over a limit, where the policy has no response: of a filter by configuration, or of {@link RateLimit}.
 *
 * @param status the status; null: 429
 * @param body the body; null: a problem (RFC 9457)
 * @param contentType of the body
 */
record OwnAnswer(Integer status, String body, String contentType) {
    private static final int STATUS_MIN = 400;
    private static final int STATUS_MAX = 599;

    /** {@return whether it is not the usual answer} */
    boolean isOwn() {
        return status != null || body != null;
    }

    /** {@return the first member that is wrong, and why; null if none is} The type of the body has a name of its own in settings and in annotations. */
    String mistake(String nameOfType) {
        if (status != null && (status < STATUS_MIN || status > STATUS_MAX)) {
            return "status: `" + status + "` is outside " + STATUS_MIN + "..=" + STATUS_MAX;
        }
        try {
            MimeTypeUtils.parseMimeType(contentType);
        } catch (InvalidMimeTypeException e) {
            return nameOfType + ": `" + contentType + "` is not a type of content; expected one such as `text/plain`";
        }
        return null;
    }

    /** {@return the answer to a refusal} An outage stays what it is, and so does the response of a policy. */
    HttpAnswer to(Decision refusal) {
        HttpAnswer answer = HttpAnswer.of(refusal);
        boolean isOfLimit = refusal.mode() != Mode.DENY && refusal.mode() != Mode.SHED && !(refusal.overflow() instanceof Overflow.Response);
        if (!isOfLimit || !isOwn()) {
            return answer;
        }
        int own = status == null ? answer.status() : status;
        return body == null ? answer.with(own) : answer.with(own, contentType, body);
    }
}
