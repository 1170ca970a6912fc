package io.sluicegate.internal;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class AlarmTest {
    private static final long SECOND = 1_000_000_000L;

    private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - SECOND);
    private final List<String> lines = new ArrayList<>();
    private final Alarm alarm = new Alarm(now::get, (level, line) -> lines.add(level + " " + line));

    @Test
    void the_log_has_a_line_a_minute_for_each_cause_and_one_when_it_is_over() {
        for (int second = 0; second < 130; second++) {
            alarm.raise("refused", "refused");
            alarm.raise(second < 20 ? "refused" : "late", second < 20 ? "refused" : "late");
            now.addAndGet(SECOND);
        }
        assertEquals(List.of("WARNING refused", "WARNING late", "WARNING refused", "WARNING late", "WARNING refused"), lines);
        lines.clear();
        alarm.clear("back");
        alarm.clear("back");
        assertEquals(List.of("INFO back, after 130 s"), lines);
    }

    @Test
    void less_than_a_second_is_in_ms() {
        alarm.raise("late", "late");
        now.addAndGet(36 * SECOND / 1000);
        alarm.clear("back");
        assertEquals(List.of("WARNING late", "INFO back, after 36 ms"), lines);
    }

    @Test
    void what_comes_and_goes_is_said_once_a_minute() {
        for (int second = 0; second < 59; second++) {
            alarm.raise("late", "late");
            alarm.clear("back");
            now.addAndGet(SECOND);
        }
        assertEquals(List.of("WARNING late", "INFO back, after 0 ms"), lines);
    }

    @Test
    void the_end_is_logged_after_the_beginning_also_if_another_thread_sees_it_meanwhile() {
        List<Alarm> made = new ArrayList<>();
        Alarm slow = new Alarm(now::get, (level, line) -> {
            if (level == System.Logger.Level.WARNING) {
                Thread other = new Thread(() -> made.get(0).clear("back"));
                other.start();
                assertDoesNotThrow(() -> other.join());
            }
            lines.add(level + " " + line);
        });
        made.add(slow);
        slow.raise("late", "late");
        assertEquals(List.of("WARNING late", "INFO back, after 0 ms"), lines);
    }

    @Test
    void a_log_that_throws_stops_no_later_line() {
        Alarm broken = new Alarm(now::get, (level, line) -> {
            lines.add(line);
            throw new IllegalStateException("full");
        });
        assertThrows(IllegalStateException.class, () -> broken.raise("late", "late"));
        assertThrows(IllegalStateException.class, () -> broken.clear("back"));
        assertEquals(List.of("late", "back, after 0 ms"), lines);
    }

    @Test
    void it_is_recent_for_a_minute_after_a_line() {
        assertFalse(alarm.isRecent());
        alarm.raise("late", "late");
        alarm.clear("back");
        now.addAndGet(Alarm.AGAIN_NANOS - 1);
        assertTrue(alarm.isRecent());
        now.incrementAndGet();
        assertFalse(alarm.isRecent());
    }

    @Test
    void causes_are_bounded_and_make_room_when_they_are_old() {
        for (int cause = 0; cause < 2 * Alarm.CAUSES_MAX; cause++) {
            alarm.raise("cause " + cause, "cause " + cause);
        }
        assertEquals(Alarm.CAUSES_MAX, lines.size());
        now.addAndGet(Alarm.AGAIN_NANOS);
        alarm.raise("new", "new");
        assertEquals("WARNING new", lines.get(Alarm.CAUSES_MAX));
    }
}
