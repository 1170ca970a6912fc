package sluicegate

import (
	"context"
	"fmt"
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
		client, line := dial(t, addr), &line{}
		client.AddHook(line)
		gate, err := Direct(client, App("shop"), WithClock(clock), Nodes(nodes), Deadline(patient))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { line.away.Store(false); gate.Close() })
		out = append(out, program{gate.Policy("a"), line})
	}
	return out
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
