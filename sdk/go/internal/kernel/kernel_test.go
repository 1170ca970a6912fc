package kernel_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

// report puts down what Redis reports in use.
func report(l *kernel.KeyState, at kernel.Moment, used int64) {
	rule := &l.Set.Rules[0]
	if l.States[0] != nil {
		rule.Rewind(l.States[0], at)
	}
	l.States[0] = rule.WithUsed(at, used)
}

func TestAReportOfACalendarWindowEndsWithIt(t *testing.T) {
	set := testkit.Set(t, kernel.Spec{Code: kernel.CodeFixedWindow, Limit: 10, Calendar: true, Zone: "Europe/Berlin"})
	key, hour := kernel.NewKeyState(set), int64(3600_000_000)
	today := kernel.Window{From: kernel.Year2026US, Till: kernel.Year2026US + 24*hour}
	report(&key, kernel.Moment{Now: today.From + 23*hour, From: today.From, Till: today.Till}, 10)
	passes := func(now int64, cost int64, w kernel.Window) bool {
		return key.Decide(set, kernel.Request{Verb: kernel.VerbCheck, Cost: cost, Now: now, Windows: []kernel.Window{w}}).Allowed
	}
	tomorrow := kernel.Window{From: today.Till, Till: today.Till + 24*hour}
	if passes(today.Till-1, 1, today) || !passes(today.Till, 10, tomorrow) {
		t.Error("what Redis reported of yesterday counts today, or not yesterday")
	}
	// Permits that passed here count for the longest day, which has 25 hours, and a tenth of it more at most.
	if passes(today.Till+25*hour-1, 1, kernel.Window{From: tomorrow.Till, Till: tomorrow.Till + 24*hour}) || !passes(today.Till+28*hour, 10, kernel.Window{From: tomorrow.Till, Till: tomorrow.Till + 24*hour}) {
		t.Error("what passed here does not count for a day")
	}
}

func TestGuavasTwoBeginWithNothingStoredUnderOtherRules(t *testing.T) {
	setOf := func(r kernel.Spec) *kernel.RuleSet { return testkit.Set(t, testkit.Named("r", r)) }
	check := kernel.Request{Verb: kernel.VerbCheck, Cost: 1, Now: kernel.Year2026US}
	reserve := kernel.Request{Verb: kernel.VerbReserve, Cost: 1, Now: kernel.Year2026US, MaxWait: kernel.SpanMaxUS}
	bursty := kernel.Spec{Code: kernel.CodeSmoothBursty, Permits: 10, PeriodUS: 1_000_000}
	larger, warmup := bursty, bursty
	larger.BurstUS = kernel.Optional{Set: true, Value: 10_000_000}
	warmup.Code, warmup.WarmupUS, warmup.Cold = kernel.CodeSmoothWarmup, 3_000_000, 3
	smooth := setOf(bursty)
	for name, c := range map[string]struct {
		before  *kernel.RuleSet
		later   *kernel.RuleSet
		pauseUS int64 // of the request after the first
	}{
		"a larger store":  {smooth, setOf(larger), 500_000},
		"a warm-up":       {smooth, setOf(warmup), 500_000},
		"another one was": {setOf(testkit.Bucket(5, time.Second, 0)), setOf(bursty), 0},
	} {
		key := kernel.NewKeyState(c.before)
		for range 5 { // of the smooth ones, each is owed 100 ms
			r := check
			if c.before == smooth {
				r = reserve
			}
			if v := key.Decide(c.before, r); !v.Allowed {
				t.Fatalf("%s: %+v", name, v)
			}
		}
		if v := key.Decide(c.later, reserve); v.Wait != c.pauseUS {
			t.Errorf("%s: waits %d µs, expected %d", name, v.Wait, c.pauseUS)
		}
	}
}

func TestSharesAreThoseOfTheWire(t *testing.T) {
	for place, e := range testkit.LoadWire[struct {
		Algorithm string
		Params    map[string]json.RawMessage
		Steps     []testkit.VectorStep
	}](t, "shares.json", 47) {
		t.Run(fmt.Sprintf("%s/%d", e.Algorithm, place), func(t *testing.T) {
			rule := testkit.VectorRule{Name: "rule", Algorithm: e.Algorithm, Params: e.Params}
			set := testkit.VectorSet(t, []testkit.VectorRule{rule}, "")
			key := kernel.NewKeyState(set)
			for place, step := range e.Steps {
				if step.Op == "said" {
					report(&key, kernel.Moment{Now: step.AtUS}, *step.Cost)
					continue
				}
				step.Expect.Rule, step.Expect.Limit = "rule", set.Rules[0].Limit()
				step.Compare(t, place, set, key.Decide(set, step.Request()))
			}
		})
	}
}

// most returns how much an algorithm lets pass in an interval of so many µs, by the numbers of its rule.
func most(rule *kernel.Rule, span, largest int64) int64 {
	n := func(place int) float64 { return rule.Numbers[place] }
	windows := func(place int) float64 { return (math.Floor(float64(span)/n(place)) + 1) * n(0) }
	most := 0.0
	switch rule.Code {
	case kernel.CodeTokenBucket, kernel.CodeLeakyBucket:
		most = math.Floor((n(3)+(math.Floor(float64(span)/n(0))+1)*n(1))/n(2)) + 1
	case kernel.CodeSmoothBursty: // the last one is paid afterwards
		most = n(2) + math.Floor(float64(span)*n(0)/n(1)) + 2 + float64(largest)
	case kernel.CodeSmoothWarmup:
		most = float64(span)/n(0) + 2 + float64(largest)
	case kernel.CodeFixedWindow:
		most = windows(2)
	default:
		most = windows(1)
	}
	return int64(min(most, 1<<62))
}

func TestNoIntervalHasMoreThanTheShare(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for round := 0; round < 2000; {
		set := testkit.Set(t, testkit.RandomRules(r)...)
		if !set.Supports(kernel.VerbCheck) {
			continue
		}
		round++
		key, now, unit := kernel.NewKeyState(set), kernel.Year2026US+r.Int64N(1e12), int64(1)<<r.IntN(36)
		type pass struct{ at, cost int64 }
		var passed []pass
		largest := int64(0)
		for range 60 {
			now += r.Int64N(unit + 1)
			req := kernel.Request{Verb: []kernel.Verb{kernel.VerbCheck, kernel.VerbAtMost}[r.IntN(2)], Cost: 1 + r.Int64N(3), Now: now}
			if r.IntN(10) == 0 {
				req.Cost = 1 + r.Int64N(kernel.CostMax)
			}
			if v := key.Decide(set, req); v.Allowed {
				passed = append(passed, pass{now, v.Granted})
				largest = max(largest, v.Granted)
			}
		}
		for i := range set.Rules {
			rule := &set.Rules[i]
			for first := range passed {
				total := int64(0)
				for _, p := range passed[first:] {
					total += p.cost
					if most := most(rule, p.at-passed[first].at, largest); total > most {
						t.Fatalf("seed %d, round %d: %d of %d by %s %v in %d µs", seed, round, total, most, rule.Name, rule.Numbers, p.at-passed[first].at)
					}
				}
			}
		}
	}
}

// BenchmarkKernel decides by one bucket in memory, as the local share does.
func BenchmarkKernel(b *testing.B) {
	set := testkit.Set(b, testkit.Bucket(1000, time.Second, 0))
	l := kernel.NewKeyState(set)
	r := kernel.Request{Verb: kernel.VerbCheck, Cost: 1, Now: kernel.Year2026US}
	b.ReportAllocs()
	for b.Loop() {
		r.Now += 900
		l.Decide(set, r)
	}
}
