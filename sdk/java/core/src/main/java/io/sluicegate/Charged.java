package io.sluicegate;

/**
 * The charge of a request without a decision, which may have taken effect nevertheless. A server reports it with each of its errors; one of before that,
 * and a balancer that answers in its place, count as {@link #UNKNOWN}.
 */
public enum Charged {
    /** The request took no effect: you may send it again. */
    NO,
    /** The request took effect: members of an atomic batch stay charged. */
    YES,
    /** The request may have taken effect: sent again, it may be charged twice. */
    UNKNOWN
}
