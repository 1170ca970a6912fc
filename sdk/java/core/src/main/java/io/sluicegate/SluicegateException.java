package io.sluicegate;

/** The reason why there is no decision: a mistake of the program, or an outage. A refusal is not an exception. */
public class SluicegateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why. */
    private final ErrorCode code;
    /** The charge of the request. */
    private final Charged charged;

    /**
     * Makes an exception; programs get them from the SDK.
     *
     * @param code why
     * @param message the text
     */
    public SluicegateException(ErrorCode code, String message) {
        this(code, message, code.charged());
    }

    /**
     * Makes an exception; programs get them from the SDK.
     *
     * @param code why
     * @param message the text
     * @param charged whether the request was charged nevertheless
     */
    public SluicegateException(ErrorCode code, String message, Charged charged) {
        super(message);
        this.code = code;
        this.charged = charged;
    }

    /** {@return why there is no decision} */
    public ErrorCode code() {
        return code;
    }

    /** {@return whether the request was charged nevertheless} */
    public Charged charged() {
        return charged;
    }
}
