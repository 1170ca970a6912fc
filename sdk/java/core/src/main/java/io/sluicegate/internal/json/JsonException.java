package io.sluicegate.internal.json;

/** A text is not JSON. */
public final class JsonException extends RuntimeException {
    private static final long serialVersionUID = 1;

    JsonException(String message) {
        super(message);
    }
}
