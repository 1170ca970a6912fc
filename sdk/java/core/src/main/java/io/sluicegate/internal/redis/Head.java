package io.sluicegate.internal.redis;

import io.sluicegate.internal.kernel.RuleSet;
import java.util.Arrays;
import java.util.HexFormat;

/** The head of a policy's rules, with which every state under them begins: a generation and an instant. */
public final class Head implements Comparable<Head> {
    /** Bytes of a head. */
    public static final int LENGTH = 11;
    private static final int GENERATION = 6;
    /** The beginning of 2026, in ms since 1970. */
    private static final long YEAR_2026_MS = 1_767_225_600_000L;

    private final byte[] bytes;

    private Head(byte[] bytes) {
        this.bytes = bytes;
    }

    /** {@return the head of rules that were taken over at an instant in ms since 1970} */
    public static Head of(RuleSet rules, long takenOverMs) {
        byte[] bytes = Arrays.copyOf(rules.generation(), LENGTH);
        long since = Math.min(Math.max(takenOverMs - YEAR_2026_MS, 0), (1L << 40) - 1);
        for (int i = 0; i < LENGTH - GENERATION; i++) {
            bytes[GENERATION + i] = (byte) (since >>> 8 * i);
        }
        return new Head(bytes);
    }

    /** {@return the head with which a state begins, or null if it is shorter than one} */
    public static Head ofState(byte[] state) {
        return state.length < LENGTH ? null : new Head(Arrays.copyOf(state, LENGTH));
    }

    /** {@return its bytes} */
    public byte[] bytes() {
        return bytes.clone();
    }

    /** {@return the generation in hex} */
    public String generationHex() {
        return HexFormat.of().formatHex(bytes, 0, GENERATION);
    }

    private long instant() {
        long since = 0;
        for (int i = LENGTH - 1; i >= GENERATION; i--) {
            since = since << 8 | bytes[i] & 0xff;
        }
        return since;
    }

    /** Orders by the instant, and then by the generation: the later version decides. */
    @Override
    public int compareTo(Head other) {
        int byInstant = Long.compare(instant(), other.instant());
        return byInstant != 0 ? byInstant : Arrays.compareUnsigned(bytes, 0, GENERATION, other.bytes, 0, GENERATION);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Head head && Arrays.equals(bytes, head.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /** {@return what is sent with every call: the lengths, the rules, and this head} */
    public byte[] blob(RuleSet rules) {
        byte[] body = rules.bytes();
        byte[] blob = new byte[3 + body.length + LENGTH];
        blob[0] = GENERATION;
        blob[1] = LENGTH;
        System.arraycopy(body, 0, blob, 3, body.length);
        System.arraycopy(bytes, 0, blob, 3 + body.length, LENGTH);
        return blob;
    }
}
