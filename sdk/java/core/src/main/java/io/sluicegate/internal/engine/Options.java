package io.sluicegate.internal.engine;

import java.time.Clock;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/**
 * The options of a program.
 *
 * @param app its name; null for none
 * @param nodes among how many a limit is shared without Redis; 0 for as many as servers publish, or 1
 * @param deadlineNanos of one question to Redis
 * @param clock the process' own clock
 */
public record Options(String app, long nodes, long deadlineNanos, Clock clock) {
    long nowUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, clock.instant());
    }

    long nowMs() {
        return clock.millis();
    }
}
