package io.sluicegate.internal.kernel;

import java.math.BigInteger;
import java.util.Arrays;

/** The name of a permit as states keep it: its 128-bit FNV-1a hash. */
public final class PermitId {
    private static final BigInteger PRIME = BigInteger.ONE.shiftLeft(88).add(BigInteger.valueOf(0x13b));
    private static final BigInteger BASIS = new BigInteger("6c62272e07bb014262b821756295c58d", 16);
    private static final BigInteger MASK = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE);

    private final byte[] hash;

    private PermitId(byte[] hash) {
        this.hash = hash;
    }

    /** {@return the id of a permit of this name} */
    public static PermitId of(byte[] name) {
        return new PermitId(fnv128(name));
    }

    /** {@return the 16 bytes of the hash, the most significant first} */
    public byte[] bytes() {
        return hash.clone();
    }

    /** {@return the 128-bit FNV-1a hash of {@code bytes}, the most significant byte first} */
    public static byte[] fnv128(byte[] bytes) {
        BigInteger hash = BASIS;
        for (byte b : bytes) {
            hash = hash.xor(BigInteger.valueOf(b & 0xff)).multiply(PRIME).and(MASK);
        }
        byte[] magnitude = hash.toByteArray();
        byte[] out = new byte[16];
        int length = Math.min(magnitude.length, 16);
        System.arraycopy(magnitude, magnitude.length - length, out, 16 - length, length);
        return out;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof PermitId id && Arrays.equals(hash, id.hash);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(hash);
    }
}
