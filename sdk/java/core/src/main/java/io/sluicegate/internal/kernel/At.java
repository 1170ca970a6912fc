package io.sluicegate.internal.kernel;

/**
 * When a rule decides.
 *
 * @param now the instant in µs since 1970
 * @param till the end of the calendar window around {@code now}, for a rule that has a calendar
 */
public record At(long now, long till) {}
