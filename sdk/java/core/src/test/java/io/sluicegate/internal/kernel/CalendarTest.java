package io.sluicegate.internal.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.sluicegate.Limit;
import java.time.Instant;
import org.junit.jupiter.api.Test;

class CalendarTest {
    @Test
    void days_begin_where_the_page_says() {
        window("America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
        window("America/Havana", "2023-11-05T12:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z");
        window("Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
        // St John's: at 00:01 of the 7th clocks go back to 23:01 of the 6th, and the window is that of the 7th.
        window("America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    }

    private static void window(String zone, String now, String from, String till) {
        Calendar calendar = new Calendar(Limit.Every.DAY, Calendar.zoneOf(zone), zone);
        assertNotNull(calendar.zone());
        long[] window = calendar.windowAround(Instant.parse(now).toEpochMilli() * 1000);
        assertEquals(from, Instant.ofEpochMilli(window[0] / 1000).toString(), zone);
        assertEquals(till, Instant.ofEpochMilli(window[1] / 1000).toString(), zone);
    }

    @Test
    void zones_are_found_without_regard_to_case() {
        assertNotNull(Calendar.zoneOf("europe/BERLIN"));
        assertNotNull(Calendar.zoneOf("EST"));
        assertNotNull(Calendar.zoneOf("EST5EDT"));
        assertNull(Calendar.zoneOf("UTC+1"));
        assertNull(Calendar.zoneOf("SystemV/AST4"));
        assertNull(Calendar.zoneOf(""));
    }
}
