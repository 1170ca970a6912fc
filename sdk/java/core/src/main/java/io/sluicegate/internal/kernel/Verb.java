package io.sluicegate.internal.kernel;

/** What a request wants, with its code in the request of the script. */
public enum Verb {
    /** Passes now or is refused. */
    CHECK(1, "check"),
    /** Passes within a wait. */
    RESERVE(2, "reserve"),
    /** Takes what there is. */
    AT_MOST(3, "at_most"),
    /** What a check would answer. */
    PEEK(4, "peek"),
    /** Gives permits back. */
    REFUND(5, "refund"),
    /** Forgets the key. */
    RESET(6, "reset"),
    /** Holds a permit by its name. */
    ACQUIRE(7, "acquire"),
    /** Gives a held permit back. */
    RELEASE(8, "release"),
    /** Holds a permit for another ttl. */
    RENEW(9, "renew");

    private final int code;
    private final String text;

    Verb(int code, String text) {
        this.code = code;
        this.text = text;
    }

    /** {@return the byte of a request} */
    public int code() {
        return code;
    }

    /** {@return the name in errors and on wires} */
    public String text() {
        return text;
    }

    /** {@return whether it names a permit} */
    public boolean namesPermit() {
        return code >= 7;
    }

    /** {@return whether these rules know it} */
    public boolean isSupportedBy(RuleSet rules) {
        return rules.handsOutPermits() ? code > 3 : code < 7;
    }
}
