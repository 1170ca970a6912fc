package io.sluicegate.spring;

import io.sluicegate.Decision;
import io.sluicegate.HttpFields;
import io.sluicegate.Overflow;
import io.sluicegate.RateLimitExceededException;
import java.nio.charset.StandardCharsets;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
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
            return new ResponseEntity<>(response.body().getBytes(StandardCharsets.UTF_8), headers, HttpStatusCode.valueOf(response.status()));
        }
        headers.setContentType(MediaType.APPLICATION_PROBLEM_JSON);
        byte[] problem = HttpFields.problem(decision).getBytes(StandardCharsets.UTF_8);
        return new ResponseEntity<>(problem, headers, HttpStatusCode.valueOf(HttpFields.status(decision)));
    }
}
