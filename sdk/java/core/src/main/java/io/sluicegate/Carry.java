package io.sluicegate;

/** The fate of usage when the rules of a key change. */
public enum Carry {
    // The ordinal is the byte in the rules.

    /** Permits in use stay in use. */
    USAGE,
    /** The part of the limit that is in use stays the same part. */
    PROPORTIONAL,
    /** Every key starts anew. */
    RESET
}
