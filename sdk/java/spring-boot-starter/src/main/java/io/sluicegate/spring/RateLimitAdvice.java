package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.HttpFields;
import io.sluicegate.Overflow;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.RequestProblems;
import java.nio.charset.StandardCharsets;
import org.springframework.http.HttpHeaders;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Answers a refusal with the response of its policy, or with 429 or 503, header fields and a problem. */
@RestControllerAdvice
public class RateLimitAdvice {
    /** Made by Spring. */
    public RateLimitAdvice() {
        // It has no state.
    }

    /**
     * Answers a refusal.
     *
     * @param refusal the refusal
     * @return the answer
     */
    @ExceptionHandler
    public ResponseEntity<byte[]> refused(RateLimitExceededException refusal) {
        Decision decision = refusal.decision();
        HttpHeaders headers = new HttpHeaders();
        HttpFields.of(decision).forEach(headers::set);
        if (decision.overflow() instanceof Overflow.Response response) {
            response.headers().forEach(headers::set);
            return answer(response.status(), headers, response.body());
        }
        headers.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
        return answer(HttpFields.status(decision), headers, HttpFields.problem(decision));
    }

    /**
     * Answers where nobody could decide. Other problems stay as they are.
     *
     * @param problem why there is no decision
     * @return the answer
     */
    @ExceptionHandler
    public ResponseEntity<byte[]> undecided(SluicegateException problem) {
        if (!RequestProblems.isUnavailable(problem)) {
            throw problem;
        }
        HttpHeaders headers = new HttpHeaders();
        headers.set(HttpHeaders.RETRY_AFTER, RequestProblems.RETRY_AFTER);
        headers.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
        return answer(503, headers, RequestProblems.UNAVAILABLE);
    }

    // By the builder, which is the same in Spring 6 and 7.
    private static ResponseEntity<byte[]> answer(int status, HttpHeaders headers, String body) {
        return ResponseEntity.status(status).headers(headers).body(body.getBytes(StandardCharsets.UTF_8));
    }
}
