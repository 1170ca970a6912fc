package testkit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Set compiles rules.
func Set(t testing.TB, rules ...kernel.Spec) *kernel.RuleSet {
	t.Helper()
	set, err := kernel.CompileRules(rules, "")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Named returns a rule with a name.
func Named(name string, rule kernel.Spec) kernel.Spec {
	rule.Name = name
	return rule
}

// Bucket returns a token bucket of a burst; 0: that of one period.
func Bucket(permits int64, period time.Duration, burst int64) kernel.Spec {
	return kernel.Spec{Code: kernel.CodeTokenBucket, Permits: permits, PeriodUS: period.Microseconds(),
		Burst: kernel.Optional{Set: burst > 0, Value: burst}}
}

// Window returns a fixed window.
func Window(limit int64, window time.Duration) kernel.Spec {
	return kernel.Spec{Code: kernel.CodeFixedWindow, Limit: limit, WindowUS: window.Microseconds()}
}

// RandomRules returns one to three rules of any algorithm, with names.
func RandomRules(r *rand.Rand) []kernel.Spec {
	held := r.IntN(6) == 0
	rules := make([]kernel.Spec, 1+r.IntN(3))
	for i := range rules {
		rule := randomRule(r)
		if held && r.IntN(2) == 0 {
			rule = kernel.Spec{Code: kernel.CodeConcurrency, Limit: 1 + r.Int64N(20), WindowUS: randomSpan(r)}
		}
		rules[i] = Named(fmt.Sprintf("r%d", r.IntN(2)+2*i), rule)
	}
	return rules
}

func randomSpan(r *rand.Rand) int64 {
	spans := []time.Duration{time.Microsecond, 3 * time.Microsecond, time.Millisecond, 700 * time.Millisecond, time.Second,
		7 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour}
	return spans[r.IntN(len(spans))].Microseconds()
}

func randomRule(r *rand.Rand) kernel.Spec {
	permits := []int64{1, 2, 3, 5, 7, 10, 60, 100, 1000, 65_536, 1 << 32}
	many, small, span := permits[r.IntN(len(permits))], 1+r.Int64N(20), randomSpan(r)
	some := func(most int64) kernel.Optional {
		return kernel.Optional{Set: r.IntN(3) == 0, Value: r.Int64N(most + 1)}
	}
	burst := kernel.Optional{Set: true, Value: small}
	switch code := byte(1 + r.IntN(8)); code {
	case kernel.CodeTokenBucket:
		if r.IntN(2) == 0 {
			return kernel.Spec{Code: code, Permits: many, PeriodUS: span}
		}
		return kernel.Spec{Code: code, Permits: many, PeriodUS: span, Burst: burst, Initial: some(small), Interval: r.IntN(3) == 0}
	case kernel.CodeLeakyBucket:
		rule := kernel.Spec{Code: code, Permits: many, PeriodUS: span, Burst: burst, Delay: some(small)}
		rule.NoDelay = !rule.Delay.Set && r.IntN(2) == 0
		return rule
	case kernel.CodeSmoothBursty:
		return kernel.Spec{Code: code, Permits: many, PeriodUS: span, BurstUS: kernel.Optional{Set: true, Value: randomSpan(r)}}
	case kernel.CodeSmoothWarmup:
		return kernel.Spec{Code: code, Permits: many, PeriodUS: span, WarmupUS: randomSpan(r), Cold: float64(150+r.IntN(500)) / 100}
	case kernel.CodeFixedWindow:
		return kernel.Spec{Code: code, Limit: small, WindowUS: span, First: r.IntN(2) == 0}
	case kernel.CodeSlidingWindow:
		return kernel.Spec{Code: code, Limit: small, WindowUS: max(span, 1000), Buckets: 1 + r.Int64N(20)}
	case kernel.CodeSlidingLog:
		return kernel.Spec{Code: code, Limit: small, WindowUS: span}
	default:
		return kernel.Spec{Code: code, Limit: min(many, 1<<32-1), WindowUS: span}
	}
}
