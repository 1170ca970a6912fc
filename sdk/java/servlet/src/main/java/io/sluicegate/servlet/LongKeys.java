package io.sluicegate.servlet;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Keys of requests that are longer than a key may be. */
final class LongKeys {
    private LongKeys() {}

    /** {@return a text that stands for these bytes: its SHA-256 in hex} */
    static String shorten(byte[] key) {
        try {
            return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(key));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-256", e);
        }
    }
}
