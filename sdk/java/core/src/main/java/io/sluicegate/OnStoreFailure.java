package io.sluicegate;

/** The decision of a policy while Redis does not answer. */
public enum OnStoreFailure {
    /** The program decides by its share of the limit. */
    LOCAL,
    /** The request passes. */
    ALLOW,
    /** The request is refused, with a retry after a second. */
    DENY
}
