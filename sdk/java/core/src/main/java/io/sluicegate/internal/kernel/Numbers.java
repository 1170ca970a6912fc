package io.sluicegate.internal.kernel;

import java.math.BigInteger;

/** The bounds of the decision model and its integer arithmetic. No number passes 2^53. */
public final class Numbers {
    /** The largest number that is counted in. */
    public static final long UNITS_MAX = 1L << 53;
    /** The longest span that is reported, in µs. */
    public static final long SPAN_MAX_US = (1L << 53) - 1;
    /** The deepest bucket, in units. */
    public static final long DEPTH_MAX = 1L << 52;
    /** A retry that never passes. */
    public static final long NEVER = -1;
    /** No limit was set on the wait of a request. */
    public static final long NO_WAIT_GIVEN = -1;
    /** The highest cost of a request. */
    public static final long COST_MAX = 1L << 31;
    /** The largest double that a state may hold. */
    static final double LARGEST = 0x1p128;

    private Numbers() {}

    /** {@return a product of two numbers from 0 on, or {@code Long.MAX_VALUE} where it is greater} */
    static long multiply(long a, long b) {
        long high = Math.multiplyHigh(a, b);
        long low = a * b;
        return high != 0 || low < 0 ? Long.MAX_VALUE : low;
    }

    /** {@return {@code floor(a * b / c)}, at most {@code UNITS_MAX}} */
    static long mulDivDown(long a, long b, long c) {
        return quotient(BigInteger.valueOf(a).multiply(BigInteger.valueOf(b)), c);
    }

    /** {@return {@code ceil(a * b / c)}, at most {@code UNITS_MAX}} */
    static long mulDivUp(long a, long b, long c) {
        return quotient(BigInteger.valueOf(a).multiply(BigInteger.valueOf(b)).add(BigInteger.valueOf(c - 1)), c);
    }

    private static long quotient(BigInteger dividend, long divisor) {
        return dividend.divide(BigInteger.valueOf(divisor)).min(BigInteger.valueOf(UNITS_MAX)).longValue();
    }

    /** {@return a quotient of numbers from 0 on, rounded up} */
    public static long ceilDiv(long a, long b) {
        return a / b + (a % b > 0 ? 1 : 0);
    }
}
