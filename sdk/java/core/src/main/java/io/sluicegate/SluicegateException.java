package io.sluicegate;

/** There is no decision: a mistake of the program, or nobody who could decide. A refusal is no exception. */
public class SluicegateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why. */
    private final ErrorCode code;

    /**
     * Makes an exception; programs get them from the SDK.
     *
     * @param code why
     * @param message the text
     */
    public SluicegateException(ErrorCode code, String message) {
        super(message);
        this.code = code;
    }

    /** {@return why there is no decision} */
    public ErrorCode code() {
        return code;
    }
}
