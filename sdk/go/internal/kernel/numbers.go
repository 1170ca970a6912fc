package kernel

import (
	"math"
	"math/bits"
	"time"
)

const (
	// UnitsMax is the largest number that is stored or reported: 2^53, up to which integers are exact in a double.
	UnitsMax int64 = 1 << 53
	// depthMax is the largest full bucket, in units.
	depthMax int64 = 1 << 52
	// SpanMaxUS is the longest span in µs.
	SpanMaxUS int64 = UnitsMax - 1
	// Year2026US is the beginning of 2026 in µs since 1970.
	Year2026US int64 = 1_767_225_600_000_000
	// largest bounds the doubles of Guava's algorithms: no product of two overflows below it.
	largest = 0x1p128
	// saturated stands for every integer that is too large; two of them can be added.
	saturated int64 = 1 << 61
	// CostMax is the largest cost of a request, in permits.
	CostMax int64 = 1 << 31
)

// mulSat multiplies integers that are not negative, and returns saturated instead of more.
func mulSat(a, b int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high > 0 || low > uint64(saturated) {
		return saturated
	}
	return int64(low)
}

// mulDiv returns floor(a * b / c) and the remainder; saturated if the quotient is above that.
func mulDiv(a, b, c int64) (quotient, remainder int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return saturated, 0
	}
	q, r := bits.Div64(high, low, uint64(c))
	if q > uint64(saturated) {
		return saturated, 0
	}
	return int64(q), int64(r)
}

// CeilDiv divides integers that are not negative, and rounds up.
func CeilDiv(a, b int64) int64 {
	return a/b + min(a%b, 1)
}

// ceilF64 rounds up; it is never below 0, and leaves doubles alone that are integers anyway.
func ceilF64(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	if x < float64(UnitsMax) {
		return math.Ceil(x)
	}
	return x
}

// capped turns a double into an integer of at most highest.
func capped(x float64, highest int64) int64 {
	if x < float64(highest) {
		return int64(x)
	}
	return highest
}

// Span turns µs into a duration; what is longer than a duration can be is the longest one.
func Span(us int64) time.Duration {
	return time.Duration(min(us, int64(1<<63-1)/1000)) * time.Microsecond
}
