package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.sluicegate.internal.Alarm;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class StoreWatchTest {
    private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 10);
    private final StoreWatch watch = new StoreWatch("h:1", () -> "deny", Alarm::silent, now::get);

    @Test
    void redis_answers_if_it_answered_lately_and_nothing_failed_since() {
        assertEquals("it was not heard of lately", watch.problem());
        watch.answered();
        assertNull(watch.problem());
        watch.failed("refused");
        assertEquals("refused", watch.problem());
        watch.shed("busy");
        assertEquals("refused", watch.problem());
        watch.answered();
        assertNull(watch.problem());
        now.addAndGet(StoreWatch.LATELY_NANOS - 1);
        assertNull(watch.problem());
        now.addAndGet(1);
        assertEquals("it was not heard of lately", watch.problem());
    }
}
