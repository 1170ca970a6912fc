package io.sluicegate.internal.kernel;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;

/**
 * The name of a permit as states keep it.
 *
 * @param hash its 128-bit FNV-1a hash
 */
public record PermitId(BigInteger hash) {
    private static final BigInteger PRIME = BigInteger.ONE.shiftLeft(88).add(BigInteger.valueOf(0x13b));
    private static final BigInteger BASIS = new BigInteger("6c62272e07bb014262b821756295c58d", 16);
    private static final BigInteger MASK = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE);

    /** {@return the id of a permit of this name; null without one} */
    public static PermitId of(String name) {
        if (name == null) {
            return null;
        }
        BigInteger hash = BASIS;
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            hash = hash.xor(BigInteger.valueOf(b & 0xff)).multiply(PRIME).and(MASK);
        }
        return new PermitId(hash);
    }

    /** {@return the 16 bytes of the hash, the most significant first} */
    public byte[] bytes() {
        byte[] out = new byte[16];
        for (int place = 0; place < out.length; place++) {
            out[place] = hash.shiftRight(8 * (out.length - 1 - place)).byteValue();
        }
        return out;
    }
}
