package io.sluicegate.internal.kernel;

/**
 * What is left under one rule.
 *
 * @param remaining permits
 * @param resetAfterUs until the budget is full
 */
record Status(long remaining, long resetAfterUs) {}
