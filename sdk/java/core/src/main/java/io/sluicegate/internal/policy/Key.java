package io.sluicegate.internal.policy;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The bytes of a caller's key; empty for the budget that all share. */
public final class Key {
    private final byte[] bytes;
    private final int hash;

    private Key(byte[] bytes) {
        this.bytes = bytes;
        this.hash = Arrays.hashCode(bytes);
    }

    /** {@return the key of this text; null is the same as an empty one} */
    public static Key of(String text) {
        return new Key((text == null ? "" : text).getBytes(StandardCharsets.UTF_8));
    }

    /** {@return the key of these bytes} */
    public static Key of(byte[] bytes) {
        return new Key(bytes.clone());
    }

    /** {@return its bytes, which nobody may change} */
    public byte[] bytes() {
        return bytes;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Key key && Arrays.equals(bytes, key.bytes);
    }

    @Override
    public int hashCode() {
        return hash;
    }
}
