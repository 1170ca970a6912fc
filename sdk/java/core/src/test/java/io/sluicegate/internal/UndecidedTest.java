package io.sluicegate.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.ErrorCode;
import io.sluicegate.testing.LogLines;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class UndecidedTest {
    @Test
    void a_key_that_is_missing_is_in_the_log_once_a_minute() {
        try (LogLines log = new LogLines()) {
            for (int request = 0; request < 3; request++) {
                assertEquals(400, Undecided.answer(ErrorCode.KEY_EMPTY.with(Map.of()), "undecided-test", Undecided.header("X-User")).status());
                assertEquals(400, Undecided.answer(ErrorCode.KEY_EMPTY.with(Map.of()), "undecided-test", "key").status());
            }
            assertEquals(List.of("WARNING a filter of policy `undecided-test` answered a request with 400: header `X-User`: is missing",
                "WARNING a filter of policy `undecided-test` answered a request with 400: key: is missing"), log.with("undecided-test"));
        }
    }
}
