package sluicegate

import (
	"slices"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Unit is the unit of a calendar window.
type Unit int

// The units of a calendar window. A week begins on Monday.
const (
	Day Unit = iota
	Week
	Month
	Year
)

// String returns the name.
func (u Unit) String() string { return nameOf(int(u), "day", "week", "month", "year") }

// Rule is one limit, for [Gate.Limit]. Make it with [TokenBucket], [FixedWindow] and the like. Its methods return a
// changed copy. Gate.Limit returns an error if a parameter is out of range, and for the zero value.
type Rule struct{ spec kernel.Spec }

// specsOf returns the parameters of rules.
func specsOf(rules []Rule) []kernel.Spec {
	out := make([]kernel.Spec, len(rules))
	for i, r := range rules {
		out[i] = r.spec
	}
	return out
}

// micros returns a duration in whole µs; 0, which no parameter takes, if it is none.
func micros(d time.Duration) int64 {
	if d%time.Microsecond != 0 {
		return 0
	}
	return d.Microseconds()
}

// TokenBucket returns a bucket that refills at `permits` a period. It holds as many permits as one period brings, unless
// [Rule.Burst] sets another size. Permits: 1 to 2^32. Period: 1 µs to 366 days.
func TokenBucket(permits int64, period time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeTokenBucket, Permits: permits, PeriodUS: micros(period)}}
}

// PerSecond returns a [TokenBucket] that refills at `permits` a second.
func PerSecond(permits int64) Rule { return TokenBucket(permits, time.Second) }

// PerMinute returns a [TokenBucket] that refills at `permits` a minute.
func PerMinute(permits int64) Rule { return TokenBucket(permits, time.Minute) }

// PerHour returns a [TokenBucket] that refills at `permits` an hour.
func PerHour(permits int64) Rule { return TokenBucket(permits, time.Hour) }

// PerDay returns a [TokenBucket] that refills at `permits` in 24 hours.
func PerDay(permits int64) Rule { return TokenBucket(permits, 24*time.Hour) }

// LeakyBucket returns a rule that delays requests so that they leave at a steady rate. Its burst is 0 unless [Rule.Burst]
// sets it.
func LeakyBucket(permits int64, period time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeLeakyBucket, Permits: permits, PeriodUS: micros(period)}}
}

// SmoothBursty returns Guava's SmoothBursty: a request of any cost passes at once, and the next one waits until it is paid.
func SmoothBursty(permits int64, period time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeSmoothBursty, Permits: permits, PeriodUS: micros(period)}}
}

// SmoothWarmup returns Guava's SmoothWarmingUp. Its cold factor is 3 unless [Rule.ColdFactor] sets it.
func SmoothWarmup(permits int64, period, warmup time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeSmoothWarmup, Permits: permits, PeriodUS: micros(period), WarmupUS: micros(warmup), Cold: 3}}
}

// FixedWindow returns a limit of permits for each window. Windows begin at multiples of their length since 1970, unless
// [Rule.FromFirst] is called.
func FixedWindow(limit int64, window time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeFixedWindow, Limit: limit, WindowUS: micros(window)}}
}

// CalendarWindow returns a limit of permits for each day, week, month or year in a time zone of the IANA database.
func CalendarWindow(limit int64, unit Unit, zone string) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeFixedWindow, Limit: limit, Calendar: true, Unit: int(unit), Zone: zone}}
}

// SlidingWindow returns a limit of permits for every window of that length. It counts in 10 buckets unless [Rule.Buckets]
// sets another number.
func SlidingWindow(limit int64, window time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeSlidingWindow, Limit: limit, WindowUS: micros(window), Buckets: 10}}
}

// SlidingCounter returns a limit for a sliding window that is estimated with two counters.
func SlidingCounter(limit int64, window time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeSlidingCounter, Limit: limit, WindowUS: micros(window)}}
}

// SlidingLog returns an exact limit of 1 to 2,500 permits for every window of that length. It remembers each request.
func SlidingLog(limit int64, window time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeSlidingLog, Limit: limit, WindowUS: micros(window)}}
}

// Concurrency returns a limit of 1 to 1,000 permits that are held at a time. A permit lapses after ttl unless it is
// renewed.
func Concurrency(limit int64, ttl time.Duration) Rule {
	return Rule{kernel.Spec{Code: kernel.CodeConcurrency, Limit: limit, WindowUS: micros(ttl)}}
}

// with returns the rule, with the parameter as an unknown field if its algorithm does not have it.
func (r Rule) with(parameter string, codes ...byte) Rule {
	if !slices.Contains(codes, r.spec.Code) {
		r.spec.UnknownField = parameter
	}
	return r
}

// Named gives the rule a name, of 1 to 128 bytes of `a-z0-9._-`. Several rules of a limit each need one. A rule takes
// usage over from the rule that had its name before.
func (r Rule) Named(name string) Rule { r.spec.Name = name; return r }

// Burst sets how many permits a bucket holds: 1 to 2^32, of a leaky bucket 0 to 2^32.
func (r Rule) Burst(permits int64) Rule {
	r.spec.Burst = kernel.Optional{Set: true, Value: permits}
	return r.with("burst", kernel.CodeTokenBucket, kernel.CodeLeakyBucket)
}

// Initial sets how many permits a new key of a token bucket has: 0 to its burst.
func (r Rule) Initial(permits int64) Rule {
	r.spec.Initial = kernel.Optional{Set: true, Value: permits}
	return r.with("initial", kernel.CodeTokenBucket)
}

// RefillByInterval makes a token bucket refill at the end of each period only.
func (r Rule) RefillByInterval() Rule {
	r.spec.Interval = true
	return r.with("refill", kernel.CodeTokenBucket)
}

// Delay sets how many permits of a leaky bucket's burst pass without being held back: 0 to the burst.
func (r Rule) Delay(permits int64) Rule {
	r.spec.Delay = kernel.Optional{Set: true, Value: permits}
	return r.with("delay", kernel.CodeLeakyBucket)
}

// NoDelay lets all requests that a leaky bucket holds pass at once.
func (r Rule) NoDelay() Rule {
	r.spec.NoDelay = true
	return r.with("delay", kernel.CodeLeakyBucket)
}

// MaxBurst sets for how long SmoothBursty stores permits. Default: one second.
func (r Rule) MaxBurst(d time.Duration) Rule {
	r.spec.BurstUS = kernel.Optional{Set: true, Value: micros(d)}
	return r.with("max_burst", kernel.CodeSmoothBursty)
}

// ColdFactor sets how much slower SmoothWarmup is when it is cold: above 1, at most 1,000.
func (r Rule) ColdFactor(factor float64) Rule {
	r.spec.Cold = factor
	return r.with("cold_factor", kernel.CodeSmoothWarmup)
}

// FromFirst makes a fixed window begin with the first request in it.
func (r Rule) FromFirst() Rule {
	r.spec.First = true
	return r.with("align", kernel.CodeFixedWindow)
}

// Buckets sets in how many parts a sliding window is counted: 1 to 1,000.
func (r Rule) Buckets(n int64) Rule {
	r.spec.Buckets = n
	return r.with("buckets", kernel.CodeSlidingWindow)
}
