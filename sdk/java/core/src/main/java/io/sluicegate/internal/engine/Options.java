package io.sluicegate.internal.engine;

import java.time.Clock;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/**
 * The options of a program.
 *
 * @param app its name; null for none
 * @param nodes among how many a limit is shared without Redis; 0 for as many as servers publish, or 1
 * @param deadlineNanos of one request to Redis
 * @param clock the process' own clock
 * @param warmsUp whether the process has just started: the path is run before the first decision, and the deadline is longer at first
 */
public record Options(String app, long nodes, long deadlineNanos, Clock clock, boolean warmsUp) {
    long nowUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, clock.instant());
    }

    long nowMs() {
        return clock.millis();
    }
}
