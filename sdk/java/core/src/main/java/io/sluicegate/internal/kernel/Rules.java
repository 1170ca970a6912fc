package io.sluicegate.internal.kernel;

/** Makes the rules of limits in code: spec/redis.md, "How the numbers are made". */
public final class Rules {
    private static final long[] FACTORS = {2, 3, 5, 7};

    private Rules() {}

    /**
     * Permits each so many µs, as written.
     *
     * @param permits 1 to 2^32
     * @param periodUs 1 µs to 366 days
     */
    public record Rate(long permits, long periodUs) {}

    private record Units(long tickUs, long perTick, long perPermit) {
        static Units of(Rate rate, long depth) {
            long divisor = gcd(rate.permits, rate.periodUs);
            long perTick = rate.permits / divisor;
            long perPermit = rate.periodUs / divisor;
            long tickUs = 1;
            long heaviest = Numbers.DEPTH_MAX / depth;
            for (long factor : FACTORS) {
                while (perPermit > heaviest && perPermit % factor == 0) {
                    perPermit /= factor;
                    tickUs *= factor;
                }
            }
            return perPermit > heaviest ? new Units(tickUs * perPermit, perTick, 1) : new Units(tickUs, perTick, perPermit);
        }

        /** {@return the time from an empty to a full bucket of so many units} */
        long fillUs(long depth) {
            return Math.min(Numbers.multiply(Numbers.ceilDiv(depth, perTick), tickUs), Numbers.SPAN_MAX_US);
        }
    }

    private static long gcd(long a, long b) {
        return b == 0 ? a : gcd(b, a % b);
    }

    /** {@return a token bucket} */
    public static Rule tokenBucket(String name, Rate rate, long burst, long initial, boolean byInterval) {
        Units units = byInterval ? new Units(rate.periodUs, rate.permits, 1) : Units.of(rate, burst);
        long depth = burst * units.perPermit;
        return Rule.of(name, 1, initial < burst ? 0 : Rule.FULL_IS_FRESH, units.fillUs(depth), null,
            units.tickUs, units.perTick, units.perPermit, depth, burst,
            (burst - initial) * units.perPermit, byInterval ? 1 : 0, rate.permits, rate.periodUs);
    }

    /** {@return a leaky bucket; {@code delay} is below 0 for `none`} */
    public static Rule leakyBucket(String name, Rate rate, long burst, long delay) {
        Units units = Units.of(rate, burst + 1);
        long depth = (burst + 1) * units.perPermit;
        return Rule.of(name, 4, Rule.FULL_IS_FRESH, units.fillUs(depth), null,
            units.tickUs, units.perTick, units.perPermit, depth, burst + 1,
            delay < 0 ? 0 : 1, 0, Math.max(delay, 0) * units.perPermit, rate.permits, rate.periodUs);
    }

    /** {@return Guava's SmoothBursty} */
    public static Rule smoothBursty(String name, Rate rate, long maxBurstUs) {
        double stored = Math.min((double) rate.permits * maxBurstUs / rate.periodUs, 0x1p52);
        // Less than a permit may be stored, but one always passes.
        double windowUs = Math.max((long) stored, 1) * (double) rate.periodUs / rate.permits;
        return Rule.of(name, 2, 0, (long) Math.min(Math.ceil(windowUs), Numbers.SPAN_MAX_US), null, rate.permits, rate.periodUs, stored);
    }

    /** {@return Guava's SmoothWarmingUp} */
    public static Rule smoothWarmup(String name, Rate rate, long warmupUs, double coldFactor) {
        double stable = (double) rate.periodUs / rate.permits;
        double cold = stable * coldFactor;
        double threshold = 0.5 * warmupUs / stable;
        double maxStored = threshold + 2.0 * warmupUs / (stable + cold);
        double slope = (cold - stable) / (maxStored - threshold);
        double cooldown = warmupUs / maxStored;
        return Rule.of(name, 3, Rule.FULL_IS_FRESH, 0, null, stable, threshold, maxStored, slope, cooldown);
    }

    /** {@return a fixed window, which begins with the first request or at multiples of its length} */
    public static Rule fixedWindow(String name, long limit, long windowUs, boolean fromFirst) {
        return Rule.of(name, 5, Rule.FULL_IS_FRESH, windowUs, null, limit, fromFirst ? 1 : 0, windowUs, 0, 0);
    }

    /** {@return a fixed window of a calendar} */
    public static Rule calendarWindow(String name, long limit, Calendar calendar) {
        // The last 6 bytes of the hash of its name.
        long zone = PermitId.of(calendar.zoneName()).hash().longValue() & (1L << 48) - 1;
        return Rule.of(name, 5, Rule.FULL_IS_FRESH | Rule.CALENDAR, 0, calendar, limit, 2, 0,
            calendar.unit().ordinal(), zone);
    }

    /** {@return a sliding window of buckets} */
    public static Rule slidingWindow(String name, long limit, long windowUs, long buckets) {
        return Rule.of(name, 6, Rule.FULL_IS_FRESH, 0, null, limit, windowUs, Numbers.ceilDiv(windowUs, buckets), buckets);
    }

    /** {@return a sliding window of two counters} */
    public static Rule slidingCounter(String name, long limit, long windowUs) {
        long step = Numbers.ceilDiv(windowUs, (1L << 51) / limit);
        return Rule.of(name, 7, Rule.FULL_IS_FRESH, windowUs, null, limit, windowUs, step, windowUs / step);
    }

    /** {@return a log of what was granted} */
    public static Rule slidingLog(String name, long limit, long windowUs) {
        return Rule.of(name, 8, Rule.FULL_IS_FRESH, windowUs, null, limit, windowUs);
    }

    /** {@return permits that are held by name} */
    public static Rule concurrency(String name, long limit, long ttlUs) {
        return Rule.of(name, 9, Rule.FULL_IS_FRESH | Rule.PERMITS, 0, null, limit, ttlUs, 0);
    }
}
