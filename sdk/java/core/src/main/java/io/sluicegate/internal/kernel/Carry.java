package io.sluicegate.internal.kernel;

/** What becomes of usage when rules change; the ordinal is the byte in the rules. */
public enum Carry {
    /** Permits in use stay in use. */
    USAGE,
    /** The part of the limit that is in use stays the same part. */
    PROPORTIONAL,
    /** Every key starts anew. */
    RESET
}
