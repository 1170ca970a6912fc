package io.sluicegate.internal;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Keys that come with requests: that one is empty or too long is no mistake of the program. */
public final class RequestKeys {
    private static final int KEY_BYTES_MAX = 1024;

    private RequestKeys() {}

    /** {@return the key; null for an empty one, and a SHA-256 in hex for one that is too long} */
    public static String usable(String key) {
        if (key == null || key.isEmpty()) {
            return null;
        }
        byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
        return bytes.length <= KEY_BYTES_MAX ? key : shorten(bytes);
    }

    private static String shorten(byte[] key) {
        try {
            return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(key));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-256", e);
        }
    }
}
