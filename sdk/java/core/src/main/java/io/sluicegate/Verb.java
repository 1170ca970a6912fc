package io.sluicegate;

import java.util.Locale;

/** The verb of a request, in the order of their codes in the request of the script. */
public enum Verb {
    /** Passes now or is refused. */
    CHECK,
    /** Passes within a wait. */
    RESERVE,
    /** Takes what there is. */
    AT_MOST,
    /** A peek returns the answer of a check, and takes nothing. */
    PEEK,
    /** Gives permits back. */
    REFUND,
    /** Forgets the key. */
    RESET,
    /** Holds a permit by its name. */
    ACQUIRE,
    /** Gives a held permit back. */
    RELEASE,
    /** Holds a permit for another ttl. */
    RENEW;

    private final String text = name().toLowerCase(Locale.ROOT);

    /** {@return the name in errors and on wires} */
    public String text() {
        return text;
    }

    /** {@return whether it names a permit} */
    public boolean namesPermit() {
        return compareTo(ACQUIRE) >= 0;
    }
}
