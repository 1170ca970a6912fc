package io.sluicegate.internal;

import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.redis.Keys;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Keys that come with requests: that one is missing or too long is no mistake of the program. */
public final class RequestKeys {
    private RequestKeys() {}

    /** {@return the key; an empty one for null, and a SHA-256 in hex for one that is too long} */
    public static String usable(String key) {
        if (key == null) {
            return "";
        }
        byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
        return bytes.length <= Keys.KEY_BYTES_MAX ? key : "sha256:" + HexFormat.of().formatHex(Rule.sha256(bytes));
    }
}
