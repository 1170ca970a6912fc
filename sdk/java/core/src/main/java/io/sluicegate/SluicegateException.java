package io.sluicegate;

/** The reason why there is no decision: a mistake of the program, or an outage. A refusal is not an exception. */
public class SluicegateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why. */
    private final ErrorCode code;
    /** The charge of the request. */
    private final Charged charged;
    /** The status of the answer of a server. */
    private final int status;

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
        this(code, message, charged, 0);
    }

    /**
     * Makes an exception; programs get them from the SDK.
     *
     * @param code why
     * @param message the text
     * @param charged whether the request was charged nevertheless
     * @param status that of the answer of a server; 0 if there is none
     */
    public SluicegateException(ErrorCode code, String message, Charged charged, int status) {
        super(message);
        this.code = code;
        this.charged = charged;
        this.status = status;
    }

    /** {@return why there is no decision} */
    public ErrorCode code() {
        return code;
    }

    /** {@return whether the request was charged nevertheless} */
    public Charged charged() {
        return charged;
    }

    /** {@return the status of an answer with the code {@link ErrorCode#SERVER}: 409 of an id that is settled already; 0 of other errors} */
    public int status() {
        return status;
    }
}
