package io.sluicegate;

/** The source of a decision. */
public enum Mode {
    /** Redis, or the server's store. */
    STORE,
    /** The server, from permits that its store has set aside for it. What is left may be less by what other servers took since. */
    LEASED,
    /** The process: it remembers that Redis refused this, until its retry. */
    REMEMBERED,
    /** The process by its share of the limit, while Redis does not answer. */
    LOCAL,
    /** The policy lets requests pass, as Redis does not answer or cannot read the key. */
    ALLOW,
    /** The policy refuses requests, as Redis does not answer or cannot read the key. */
    DENY,
    /** Redis answers, but did not come to a decision in time. The request is refused. */
    SHED
}
