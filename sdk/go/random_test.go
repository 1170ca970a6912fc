package sluicegate

import (
	"context"
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
			return SmoothWarmup(n(), d(), d()).ColdFactor(1.5 + r.Float64()*5)
		case 5:
			if r.IntN(2) == 0 {
				return FixedWindow(small(), d()).FromFirst()
			}
			return FixedWindow(small(), d())
		case 6:
			return SlidingWindow(small(), d()+time.Millisecond).Buckets(1 + r.Int64N(20))
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

func TestTheKernelAndRedisAgreeOnRandomLives(t *testing.T) {
	client := dial(t, redisAddr(t))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	clockNow := time.Now()
	store := newRedisStore(redisConn{client}, 5*time.Second, func() time.Time { return clockNow }, func() clock { return clockGiven })
	const steps = 20_000
	for done, round := 0, 0; done < steps; round++ {
		name, instant := fmt.Sprintf("p%d", round), int64(1000)
		configure := func() *plan {
			for {
				var p problems
				if set := compileRules("rules", randomRules(r), "", carry(r.IntN(3)), &p); set != nil {
					instant++
					made, _ := ofPolicy(name, set, nil, instant)
					return made
				}
			}
		}
		plan := configure()
		memory := &memoryStore{keys: map[string]*life{}}
		now, unit := year2026US+r.Int64N(1e12), int64(1)<<r.IntN(36)
		for range 60 {
			if r.IntN(25) == 0 {
				plan = configure()
			}
			now += r.Int64N(unit + 1)
			if r.IntN(30) == 0 {
				now -= r.Int64N(2 * unit)
			}
			verbs := []verb{verbCheck, verbCheck, verbCheck, verbReserve, verbReserve, verbAtMost, verbPeek, verbRefund, verbReset}
			if plan.set.handsOut {
				verbs = []verb{verbAcquire, verbAcquire, verbAcquire, verbRelease, verbRenew, verbPeek, verbReset, verbRefund}
			}
			ask := request{verb: verbs[r.IntN(len(verbs))], cost: 1 + r.Int64N(3), now: max(now, 0),
				maxWait: r.Int64N(unit*2 + 1), permit: permitOf(fmt.Sprint(r.IntN(5)))}
			if r.IntN(20) == 0 {
				ask.cost, ask.maxWait = 1+r.Int64N(CostMax), spanMaxUS
			}
			q := question{plan: plan, key: stateKey(name, "k"), request: ask}
			want, f := store.ask(context.Background(), q)
			if f != nil {
				t.Fatal(f)
			}
			own, _ := memory.ask(context.Background(), q)
			got := own.verdict
			if done++; got != want.verdict {
				t.Fatalf("seed %d, round %d: %v %+v by %+v: %+v, Redis says %+v", seed, round, ask.verb, ask, plan.set.rules, got, want.verdict)
			}
		}
	}
}
