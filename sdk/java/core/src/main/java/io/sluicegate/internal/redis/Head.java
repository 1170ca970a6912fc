package io.sluicegate.internal.redis;

import io.sluicegate.internal.kernel.RuleSet;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * With what every state begins: of a policy's rules a generation and an instant, of a limit that a caller brings along
 * its rules in short.
 */
public final class Head {
    /** Bytes of a policy's head. */
    public static final int LENGTH = 11;
    private static final int GENERATION = 6;
    /** The beginning of 2026, in ms since 1970. */
    private static final long YEAR_2026_MS = 1_767_225_600_000L;

    private final byte[] bytes;
    private final boolean broughtAlong;

    private Head(byte[] bytes, boolean broughtAlong) {
        this.bytes = bytes;
        this.broughtAlong = broughtAlong;
    }

    /** {@return the head of a policy's rules that were taken over at an instant in ms since 1970} */
    public static Head of(RuleSet rules, long takenOverMs) {
        byte[] bytes = Arrays.copyOf(rules.generation(), LENGTH);
        long since = Math.min(Math.max(takenOverMs - YEAR_2026_MS, 0), (1L << 40) - 1);
        for (int i = 0; i < LENGTH - GENERATION; i++) {
            bytes[GENERATION + i] = (byte) (since >>> 8 * i);
        }
        return new Head(bytes, false);
    }

    /** {@return the head of a limit that a caller brings along} */
    public static Head broughtAlong(RuleSet rules) {
        return new Head(ShortRules.write(rules), true);
    }

    /** {@return the head with which a policy's state begins, or null if it is shorter than one} */
    public static Head ofState(byte[] state) {
        return state.length < LENGTH ? null : new Head(Arrays.copyOf(state, LENGTH), false);
    }

    /** {@return the rules of the limit with which a state begins that a caller brought along, or null if it does not} */
    public static RuleSet rulesOfState(byte[] state) {
        return ShortRules.read(state);
    }

    /** {@return whether it is that of a limit that a caller brings along} */
    public boolean isBroughtAlong() {
        return broughtAlong;
    }

    /** {@return its bytes} */
    public byte[] bytes() {
        return bytes.clone();
    }

    /** {@return the generation of a policy's rules in hex} */
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

    /** {@return whether this is the head of a later version of a policy, which decides then: by the instant, and then by the generation} */
    public boolean isLaterThan(Head other) {
        int byInstant = Long.compare(instant(), other.instant());
        return byInstant > 0 || byInstant == 0 && Arrays.compareUnsigned(bytes, 0, GENERATION, other.bytes, 0, GENERATION) > 0;
    }

    /** {@return what is sent with every call: the lengths, the rules, and this head} */
    public byte[] blob(RuleSet rules) {
        byte[] body = rules.bytes();
        byte[] blob = new byte[3 + body.length + bytes.length];
        blob[0] = (byte) (broughtAlong ? 0 : GENERATION);
        blob[1] = (byte) bytes.length;
        blob[2] = (byte) (bytes.length >>> 8);
        System.arraycopy(body, 0, blob, 3, body.length);
        System.arraycopy(bytes, 0, blob, 3 + body.length, bytes.length);
        return blob;
    }
}
