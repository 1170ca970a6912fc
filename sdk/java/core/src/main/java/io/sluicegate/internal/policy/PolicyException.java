package io.sluicegate.internal.policy;

/** A document cannot be read; the message is the path and the problem. */
public final class PolicyException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Says what is wrong and where. */
    public PolicyException(String path, String problem) {
        super(path.isEmpty() ? problem : path + ": " + problem);
    }
}
