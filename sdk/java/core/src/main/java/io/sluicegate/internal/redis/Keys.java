package io.sluicegate.internal.redis;

import io.sluicegate.internal.kernel.Rule;
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
    public static byte[] state(String policy, byte[] key) {
        byte[] name = policy.getBytes(StandardCharsets.UTF_8);
        ByteBuffer parts = ByteBuffer.allocate(16 + name.length + key.length).order(ByteOrder.LITTLE_ENDIAN);
        parts.putLong(name.length).put(name).putLong(key.length).put(key);
        return ascii("sg:{" + hash(parts.array()) + "}");
    }

    /** {@return the place of the rules of a policy} */
    public static byte[] rules(String policy, String generationHex) {
        byte[] name = policy.getBytes(StandardCharsets.UTF_8);
        ByteBuffer parts = ByteBuffer.allocate(8 + name.length).order(ByteOrder.LITTLE_ENDIAN);
        parts.putLong(name.length).put(name);
        return ascii("sg:rules:" + hash(parts.array()) + ":" + generationHex);
    }

    private static String hash(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(Arrays.copyOf(Rule.sha256(bytes), 16));
    }
}
