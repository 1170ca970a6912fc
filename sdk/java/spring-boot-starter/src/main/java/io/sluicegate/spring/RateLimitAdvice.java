package io.sluicegate.spring;

import io.sluicegate.HttpAnswer;
import io.sluicegate.RateLimitExceededException;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.Undecided;
import java.nio.charset.StandardCharsets;
import org.springframework.http.HttpHeaders;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/** Answers a refusal with the response of its policy or that of its {@link RateLimit}, or with 429 or 503, header fields and a problem. */
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
        return answer(refusal.answer());
    }

    /**
     * Answers what has no decision: 503 during an outage, 400 without a key, 500 for a mistake of the program, which is in the log.
     *
     * @param problem why there is no decision
     * @return the answer
     */
    @ExceptionHandler
    public ResponseEntity<byte[]> undecided(SluicegateException problem) {
        return answer(Undecided.answer(problem));
    }

    // By the builder, which is the same in Spring 6 and 7.
    private static ResponseEntity<byte[]> answer(HttpAnswer answer) {
        HttpHeaders headers = new HttpHeaders();
        answer.fields().forEach(headers::set);
        return ResponseEntity.status(answer.status()).headers(headers).body(answer.body().getBytes(StandardCharsets.UTF_8));
    }
}
