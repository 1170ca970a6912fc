package io.sluicegate.internal.engine;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** The script that decides in Redis, and its name. */
final class Script {
    /** Its text. */
    static final byte[] TEXT = load();
    /** Its SHA-1 in hex, by which Redis knows it. */
    static final byte[] SHA1 = sha1(TEXT);

    private Script() {}

    private static byte[] load() {
        try (InputStream in = Script.class.getResourceAsStream("/io/sluicegate/decide.lua")) {
            return in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static byte[] sha1(byte[] text) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-1").digest(text);
            return HexFormat.of().formatHex(hash).getBytes(StandardCharsets.US_ASCII);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-1", e);
        }
    }
}
