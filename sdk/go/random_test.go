package sluicegate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// randomRules gives one to three rules of any algorithm.
func randomRules(r *rand.Rand) []Rule {
	permits := []int64{1, 2, 3, 5, 7, 10, 60, 100, 1000, 65_536, 1 << 32}
	spans := []time.Duration{time.Microsecond, 3 * time.Microsecond, time.Millisecond, 700 * time.Millisecond, time.Second,
		7 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 366 * 24 * time.Hour}
	n, d := func() int64 { return permits[r.IntN(len(permits))] }, func() time.Duration { return spans[r.IntN(len(spans))] }
	small := func() int64 { return 1 + r.Int64N(20) }
	held := r.IntN(6) == 0
	one := func() Rule {
		if held && r.IntN(2) == 0 {
			return Concurrency(small(), d())
		}
		switch r.IntN(9) {
		case 0:
			rule := TokenBucket(n(), d()).Burst(small())
			if r.IntN(3) == 0 {
				rule = rule.Initial(r.Int64N(rule.burst.value + 1))
			}
			if r.IntN(3) == 0 {
				rule = rule.RefillByInterval()
			}
			return rule
		case 1:
			return TokenBucket(n(), d())
		case 2:
			rule := LeakyBucket(n(), d()).Burst(small())
			switch r.IntN(3) {
			case 0:
				return rule.NoDelay()
			case 1:
				return rule.Delay(r.Int64N(rule.burst.value + 1))
			}
			return rule
		case 3:
			return SmoothBursty(n(), d()).MaxBurst(d())
		case 4:
			return SmoothWarmup(n(), d(), d()).ColdFactor(float64(150+r.IntN(500)) / 100)
		case 5:
			if r.IntN(2) == 0 {
				return FixedWindow(small(), d()).FromFirst()
			}
			return FixedWindow(small(), d())
		case 6:
			return SlidingWindow(small(), max(d(), time.Millisecond)).Buckets(1 + r.Int64N(20))
		case 7:
			return SlidingCounter(min(n(), 1<<32-1), d())
		default:
			return SlidingLog(small(), d())
		}
	}
	rules := make([]Rule, 1+r.IntN(3))
	for i := range rules {
		rules[i] = one().Named(fmt.Sprintf("r%d", r.IntN(2)+2*i))
	}
	return rules
}

// most gives how much an algorithm lets pass in an interval of so many µs, by the numbers of its rule.
func most(rule *rule, span, largest int64) int64 {
	n := func(place int) int64 { return int64(rule.numbers[place]) }
	switch rule.code {
	case codeTokenBucket, codeLeakyBucket:
		return min(n(3)+mulSat(span/n(0)+1, n(1)), saturated)/n(2) + 1
	case codeSmoothBursty: // the last one is paid afterwards
		flowed, _ := mulDiv(span, n(0), n(1))
		return n(2) + flowed + 2 + largest
	case codeSmoothWarmup:
		return capped(float64(span)/rule.numbers[0], saturated) + 2 + largest
	case codeFixedWindow:
		return mulSat(span/n(2)+1, n(0))
	default:
		return mulSat(span/n(1)+1, n(0))
	}
}

func TestNoIntervalHasMoreThanTheShare(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for round := 0; round < 2000; {
		set := ruleSetOf(t, randomRules(r)...)
		if set.handsOut {
			continue
		}
		round++
		key, now, unit := emptyLife(set), year2026US+r.Int64N(1e12), int64(1)<<r.IntN(36)
		type pass struct{ at, cost int64 }
		var passed []pass
		largest := int64(0)
		for range 60 {
			now += r.Int64N(unit + 1)
			ask := request{verb: []verb{verbCheck, verbAtMost}[r.IntN(2)], cost: 1 + r.Int64N(3), now: now}
			if r.IntN(10) == 0 {
				ask.cost = 1 + r.Int64N(CostMax)
			}
			if v := key.decide(set, ask); v.allowed {
				passed = append(passed, pass{now, v.granted})
				largest = max(largest, v.granted)
			}
		}
		for i := range set.rules {
			rule := &set.rules[i]
			for first := range passed {
				total := int64(0)
				for _, p := range passed[first:] {
					total += p.cost
					if most := most(rule, p.at-passed[first].at, largest); total > most {
						t.Fatalf("seed %d, round %d: %d of %d by %s %v in %d µs", seed, round, total, most, rule.name, rule.numbers, p.at-passed[first].at)
					}
				}
			}
		}
	}
}
