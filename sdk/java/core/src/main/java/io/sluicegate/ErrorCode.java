package io.sluicegate;

import io.sluicegate.internal.Texts;
import java.util.Map;

/** Why there is no decision. Names and texts are the same in all SDKs; the names are these in small letters. */
public enum ErrorCode {
    /** The policy is not published, not configured or not in force. */
    UNKNOWN_POLICY("policy: unknown policy `{policy}`"),
    /** Redis answers, and no policies are published there: no server with {@code store.publish} uses it, or it is another Redis. */
    NOTHING_PUBLISHED("policy: no policies are published in the Redis at {address}; start a server on it (its `store.publish` is `true` unless set)"),
    /** The policy is for other apps, or the verb is for its owner only. */
    POLICY_NOT_AVAILABLE("app: policy `{policy}` is not available to app `{app}`"),
    /** The policy is for other apps, or the verb is for its owner only, and the program has no app. */
    APP_MISSING("app: policy `{policy}` is not available to a caller without an app"),
    /** The option is not a name. */
    APP_NAME("app: `{value}` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`"),
    /** An empty text is given as the key; {@link Limiter#shared()} takes one. */
    KEY_EMPTY("key: is empty, expected 1..=1024 bytes; omit it for the shared budget"),
    /** The key has too many bytes. */
    KEY_LENGTH("key: `{value}` bytes are outside 1..=1024"),
    /** The id of a permit has none or too many bytes. */
    ID_LENGTH("id: `{value}` bytes are outside 1..=1024"),
    /** The cost is not in its range. */
    COST_RANGE("cost: `{value}` is outside 1..=2147483648"),
    /** A wait is negative or too long. */
    MAX_WAIT_RANGE("max_wait: `{value}` is outside 0..=9007199254740991 us"),
    /** The number of nodes is not in its range. */
    NODES_RANGE("nodes: `{value}` is outside 1..=4294967295"),
    /** The deadline is not in its range. */
    DEADLINE_RANGE("deadline: `{value}` is outside 1..=10000 ms"),
    /** The rules do not support the verb. */
    UNSUPPORTED_VERB("op: `{verb}` is not supported by policy `{policy}`"),
    /** Only a server can do this. */
    NOT_IN_DIRECT_MODE("op: `{verb}` is not available in direct mode; ask a server"),
    /** There is no decision, and the request was certainly not executed. */
    NOT_CHARGED("store: {cause}; nothing was charged"),
    /** There is no decision, and the request may have been executed. */
    PERHAPS_CHARGED("store: {cause}; perhaps charged, not repeated"),
    /** The record of a policy cannot be read: it is of a later version, or damaged and no earlier version is held. */
    UNREADABLE_POLICY("policy: `{policy}` cannot be read: {cause}"),
    /** A limit made in code, or a file of records, is not valid. */
    RULES("rules: {cause}"),
    /** A key, or the name of a permit, has half of a surrogate pair, for which UTF-8 has no bytes. */
    KEY_TEXT("key: is not UTF-8"),
    /** The wire of the server has no such verb. */
    NOT_ON_THIS_WIRE("op: `{verb}` is not available over {wire}"),
    /** The caller gave up while a request was under way. */
    INTERRUPTED("interrupted: {cause}; perhaps charged, not repeated"),
    /** A server answers with a problem that is none of these. */
    SERVER("server: {status} {detail}");

    private final String text;

    ErrorCode(String text) {
        this.text = text;
    }

    /** {@return the text, with the names of its parts in braces} */
    public String text() {
        return text;
    }

    /** The charge of an error of which no server reports it. */
    Charged charged() {
        return this == PERHAPS_CHARGED || this == INTERRUPTED || this == SERVER ? Charged.UNKNOWN : Charged.NO;
    }

    /**
     * Makes the exception of this error.
     *
     * @param parts what stands for each name in braces; of each the first 1,024 characters
     * @return the exception
     */
    public SluicegateException with(Map<String, ?> parts) {
        String message = text;
        for (Map.Entry<String, ?> part : parts.entrySet()) {
            message = message.replace("{" + part.getKey() + "}", Texts.truncate(String.valueOf(part.getValue())));
        }
        return new SluicegateException(this, message, charged(), parts.get("status") instanceof Integer status ? status : 0);
    }
}
