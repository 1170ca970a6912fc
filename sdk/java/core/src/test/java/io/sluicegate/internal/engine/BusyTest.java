package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.RedisPort;
import io.sluicegate.internal.Deadline;
import org.junit.jupiter.api.Test;

/** "Silent or busy" of the page "When Redis does not decide", and the deadline of the first seconds. */
class BusyTest {
    private static final long MS = 1_000_000;
    private static final long DEADLINE = 50 * MS;

    private static boolean isBusy(long silentMs, int waiting, int slowAlone, long lateMs) {
        return RedisStore.isBusy(new RedisPort.Signs(silentMs * MS, waiting, slowAlone), lateMs * MS, DEADLINE);
    }

    @Test
    void a_redis_that_answered_within_a_deadline_is_busy() {
        assertTrue(isBusy(49, 1, 0, 0));
        assertFalse(isBusy(50, 1, 0, 0));
    }

    @Test
    void one_that_is_slow_three_times_on_end_without_a_queue_is_silent() {
        assertTrue(isBusy(10, 1, 2, 0));
        assertFalse(isBusy(10, 1, 3, 0));
    }

    @Test
    void a_queue_counts_as_busy_for_ten_deadlines() {
        assertFalse(isBusy(400, 63, 0, 0));
        assertTrue(isBusy(499, 64, 9, 0));
        assertFalse(isBusy(500, 64, 0, 0));
    }

    @Test
    void a_timer_that_is_late_is_no_silence_of_redis() {
        assertFalse(isBusy(400, 1, 0, 12));
        assertTrue(isBusy(400, 1, 3, 13));
        assertFalse(isBusy(500, 1, 0, 13));
        // The process stood still, for however long.
        assertTrue(isBusy(10_000, 1, 0, 200));
        assertFalse(isBusy(10_000, 1, 0, 199));
    }

    @Test
    void the_first_seconds_have_a_longer_deadline_from_the_first_decision_on() {
        long start = Long.MAX_VALUE - 1000 * MS;
        Deadline deadline = new Deadline(DEADLINE, true);
        assertEquals(500 * MS, deadline.ofLook(start));
        start += 3_600_000 * MS;
        assertEquals(500 * MS, deadline.ofDecision(start));
        assertEquals(500 * MS, deadline.ofDecision(start + 4_999 * MS));
        assertEquals(DEADLINE, deadline.ofDecision(start + 5_000 * MS));
        assertEquals(DEADLINE, deadline.ofLook(start + 5_000 * MS));
    }

    @Test
    void without_a_cold_start_and_above_half_a_second_the_deadline_is_what_is_set() {
        assertEquals(DEADLINE, new Deadline(DEADLINE, false).ofDecision(0));
        assertEquals(700 * MS, new Deadline(700 * MS, true).ofDecision(0));
    }
}
