package io.sluicegate.internal.redis;

import io.sluicegate.internal.kernel.Rule;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

/** Where things are in Redis. */
public final class Keys {
    /** The hash of the policies. */
    public static final byte[] POLICIES = ascii("sg:{policies}");
    /** Servers publish each new revision on this channel. */
    public static final String CHANNEL = "sg:policies";
    /** The prefix of the name of a limit that a program makes in its code; no policy is called so. */
    public static final String LIMIT = "limit:";
    /** The longest key of a caller, in bytes. */
    public static final int KEY_BYTES_MAX = 1024;

    private Keys() {}

    /** {@return the bytes of a text of ASCII} */
    public static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** {@return the place of the state of a caller's key under a policy} */
    public static byte[] state(String policy, String key) {
        return ascii("sg:{" + hash(policy, key) + "}");
    }

    /** {@return the place of the rules of a policy} */
    public static byte[] rules(String policy, String generationHex) {
        return ascii("sg:rules:" + hash(policy) + ":" + generationHex);
    }

    /** {@return the hash of texts, each after its length} */
    private static String hash(String... texts) {
        ByteArrayOutputStream parts = new ByteArrayOutputStream(128);
        for (String text : texts) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            parts.writeBytes(ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(bytes.length).array());
            parts.writeBytes(bytes);
        }
        return Base64.getUrlEncoder().withoutPadding().encodeToString(Arrays.copyOf(Rule.sha256(parts.toByteArray()), 16));
    }
}
