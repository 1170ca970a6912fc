package io.sluicegate.internal.policy;

/** A record is not read; the message is the member and the problem. */
public final class RecordException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** True if the record is of a later version, so that nothing is decided by its policy. */
    private final boolean later;

    private RecordException(String member, String problem, boolean later) {
        super(member.isEmpty() ? problem : member + ": " + problem);
        this.later = later;
    }

    static RecordException later(String member, String problem) {
        return new RecordException(member, problem, true);
    }

    static RecordException damaged(String member, String problem) {
        return new RecordException(member, problem, false);
    }

    /** {@return whether the record is of a later version; else it is damaged, and what is held stays} */
    public boolean isLater() {
        return later;
    }
}
