package sluicegate

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

// program is a gate whose line to Redis can be cut, at a clock that the test sets.
type program struct {
	limiter *Limiter
	line    *line
}

// programs returns so many gates of one policy, which Redis decides by their clock.
func programs(t *testing.T, clock *manual, nodes int64, rules ...Rule) (out []program) {
	t.Helper()
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, rules...)
	if err := dial(t, addr).HSet(ctx, policy.PoliciesKey, "#clock", "client").Err(); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		out = append(out, programAt(t, addr, clock, nodes))
	}
	return out
}

// programAt returns a gate of the policy `a` that is published.
func programAt(t *testing.T, addr string, clock *manual, nodes int64) program {
	t.Helper()
	client, line := dial(t, addr), &line{}
	client.AddHook(line)
	gate, err := Direct(client, App("shop"), WithClock(clock), Nodes(nodes), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.away.Store(false); gate.Close() })
	return program{gate.Policy("a"), line}
}

// passed returns how many of so many checks pass, all of which are decided in a mode.
func (p program) passed(t *testing.T, tries int, mode Mode) (n int64) {
	t.Helper()
	for range tries {
		d, err := p.limiter.Allow(context.Background(), "k")
		if err != nil || d.Mode != mode && d.Mode != ModeRemembered {
			t.Fatalf("%+v, %v, expected mode %s", d, err, mode)
		}
		if d.Allowed {
			n++
		}
	}
	return n
}

// The bucket decides while Redis answers, as of it the least is left: the quota of a day is in the answer all the same.
func TestOfTwoRulesAnOutageGivesNeitherAgain(t *testing.T) {
	for _, nodes := range []int64{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			clock := newManual()
			all := programs(t, clock, nodes, FixedWindow(100, 24*time.Hour).Named("day"), PerSecond(20).Burst(6).Named("burst"))
			var total int64
			for range 15 {
				for _, p := range all {
					total += p.passed(t, 3, ModeStore)
				}
				clock.Advance(300 * time.Millisecond)
			}
			before := total
			if before < 45 || before > 90 {
				t.Fatal(before)
			}
			for _, p := range all {
				// Each gets to know the permits that the other took last.
				if _, err := p.limiter.Peek(context.Background(), "k", 1); err != nil {
					t.Fatal(err)
				}
				p.line.away.Store(true)
			}
			for range 135 {
				for _, p := range all {
					total += p.passed(t, 3, ModeLocal)
				}
				clock.Advance(300 * time.Millisecond)
			}
			if total != 100 {
				t.Errorf("%d passed of 100, %d of them before the outage", total, before)
			}
		})
	}
}

func TestTheExampleOfTwoRulesWithoutRedis(t *testing.T) {
	clock := newManual()
	p := programs(t, clock, 1, FixedWindow(1000, 24*time.Hour).Named("day"), PerSecond(200).Burst(50).Named("burst"))[0]
	for range 17 {
		if n := p.passed(t, 50, ModeStore); n != 50 {
			t.Fatal(n)
		}
		clock.Advance(time.Second)
	}
	// 47 more, of which the last leaves 3 in the bucket; 3 more than a second before.
	if n := p.passed(t, 3, ModeStore); n != 3 {
		t.Fatal(n)
	}
	clock.Advance(time.Second)
	if n := p.passed(t, 47, ModeStore); n != 47 {
		t.Fatal(n)
	}
	if d, err := p.limiter.Peek(context.Background(), "k", 1); err != nil || d.Remaining != 3 || d.Rule != "burst" {
		t.Fatalf("%+v, %v", d, err)
	}
	p.line.away.Store(true)
	if n := p.passed(t, 10, ModeLocal); n != 3 {
		t.Errorf("%d passed at once, expected 3", n)
	}
	total := int64(3)
	for range 100 {
		clock.Advance(100 * time.Millisecond)
		total += p.passed(t, 21, ModeLocal)
	}
	if total != 100 {
		t.Errorf("%d passed without Redis, expected 100", total)
	}
}

// Usage of 3,000 of 4,000 a day is there when the limit is lowered to 50 for an hour, by an override. Two programs see the key in that hour
// only, one of them by rules of a later version, and the hour ends while Redis is away.
func TestALimitThatWasLoweredGivesNothingAgainInAnOutage(t *testing.T) {
	const hold = 24 * time.Hour
	day := func(limit int64) Rule { return FixedWindow(limit, hold).Named("day") }
	fast := PerSecond(10_000).Burst(10_000).Named("fast")
	for name, c := range map[string]struct{ rules, lowered []Rule }{
		"one rule":      {[]Rule{day(4000)}, []Rule{day(50)}},
		"several rules": {[]Rule{fast, day(4000)}, []Rule{day(50), fast}},
		"another rule":  {[]Rule{day(4000)}, []Rule{SlidingLog(50, hold).Named("day")}},
	} {
		t.Run(name, func(t *testing.T) {
			clock, addr, ctx := newManual(), redisAddr(t), context.Background()
			admin := dial(t, addr)
			// The revision stays, so that programs that have read it do not read it again.
			publishVersion := func(version int64, changed map[string]any) {
				maps.Copy(changed, rulesOf(ruleSetOf(t, c.rules...)))
				changed["version"], changed["app"], changed["since_ms"] = version, "shop", clock.Now().UnixMilli()
				record := recordWith(t, "window", changed)
				if err := admin.HSet(ctx, policy.PoliciesKey, "#format", "1", "#revision", 1, "#clock", "client", "a", record).Err(); err != nil {
					t.Fatal(err)
				}
			}
			publishVersion(1, map[string]any{})
			first, old := programAt(t, addr, clock, 1), programAt(t, addr, clock, 1)
			if d, err := first.limiter.AllowN(ctx, "k", 3000); err != nil || !d.Allowed || d.Mode != ModeStore {
				t.Fatalf("%+v, %v", d, err)
			}
			clock.Advance(time.Minute)
			override := rulesOf(ruleSetOf(t, c.lowered...))
			override["key"], override["until_ms"] = "k", clock.Now().Add(time.Hour).UnixMilli()
			publishVersion(2, map[string]any{"overrides": []any{override}})
			all := []program{programAt(t, addr, clock, 1), old}
			// When they stop, Redis is asked again, and has room for what they owe.
			t.Cleanup(func() { admin.FlushAll(ctx); clock.Advance(time.Second) })
			for i, p := range all {
				if d, err := p.limiter.Allow(ctx, "k"); err != nil || d.Allowed || d.Mode != ModeStore || d.Limit != 50 || d.Remaining != 0 {
					t.Fatalf("program %d: %+v, %v", i, d, err)
				}
				p.line.away.Store(true)
			}
			clock.Advance(time.Hour)
			for i, p := range all {
				passed := 0
				for range 40 {
					d, err := p.limiter.AllowN(ctx, "k", 100)
					if err != nil || d.Mode != ModeLocal || d.Limit != 4000 {
						t.Fatalf("program %d: %+v, %v", i, d, err)
					}
					if d.Allowed {
						passed += 100
					}
				}
				if passed != 1000 {
					t.Errorf("program %d: %d passed without Redis after 3000 of 4000", i, passed)
				}
			}
		})
	}
}
