package sluicegate

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// program is a gate whose line to Redis can be cut, at a clock that the test sets.
type program struct {
	limiter *Limiter
	line    *line
}

// programs gives so many gates of one policy, which Redis decides by their clock.
func programs(t *testing.T, clock *manual, nodes int64, rules ...Rule) (out []program) {
	t.Helper()
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, rules...)
	if err := dial(t, addr).HSet(ctx, policiesKey, "#clock", "client").Err(); err != nil {
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

// passed gives how many of so many checks pass, all of which are decided in a mode.
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
				clock.advance(300 * time.Millisecond)
			}
			before := total
			if before < 45 || before > 90 {
				t.Fatal(before)
			}
			for _, p := range all {
				// Each hears what the other took last.
				if _, err := p.limiter.Peek(context.Background(), "k", 1); err != nil {
					t.Fatal(err)
				}
				p.line.away.Store(true)
			}
			for range 135 {
				for _, p := range all {
					total += p.passed(t, 3, ModeLocal)
				}
				clock.advance(300 * time.Millisecond)
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
		clock.advance(time.Second)
	}
	// 47 more, of which the last leaves 3 in the bucket; 3 more than a second before.
	if n := p.passed(t, 3, ModeStore); n != 3 {
		t.Fatal(n)
	}
	clock.advance(time.Second)
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
		clock.advance(100 * time.Millisecond)
		total += p.passed(t, 21, ModeLocal)
	}
	if total != 100 {
		t.Errorf("%d passed without Redis, expected 100", total)
	}
}

func TestWhatLaterRulesSayIsSaidOfTheOwnRulesOfTheSameNames(t *testing.T) {
	own := ruleSetOf(t, PerSecond(10).Named("a"), FixedWindow(100, time.Hour).Named("b"), FixedWindow(7, time.Minute).Named("c"))
	for name, c := range map[string]struct {
		said answer
		want [3]int64
	}{
		"the own rules": {answer{set: own, left: []int64{4, 99, 8}}, [3]int64{6, 1, 0}},
		"some of them": {answer{left: []int64{150, 0, 20}, set: ruleSetOf(t, FixedWindow(200, time.Hour).Named("b"),
			PerSecond(5).Named("x"), PerSecond(30).Named("a"))}, [3]int64{10, 50, notSaid}},
		"none of them": {answer{verdict: verdict{rule: 1, remaining: 2}, left: []int64{1, 2},
			set: ruleSetOf(t, PerSecond(9).Named("x"), PerSecond(5).Named("y"))}, [3]int64{3, notSaid, notSaid}},
		"one of them":   {answer{verdict: verdict{remaining: 2}, set: ruleSetOf(t, PerSecond(5).Named("c"))}, [3]int64{notSaid, notSaid, 3}},
		"another alone": {answer{verdict: verdict{remaining: 2}, set: ruleSetOf(t, PerSecond(5).Named("x"))}, [3]int64{3, notSaid, notSaid}},
	} {
		if got := c.said.inUse(own); [3]int64(got[:3]) != c.want {
			t.Errorf("%s: %v, expected %v", name, got[:3], c.want)
		}
	}
}

// An answer that comes while a bill is on its way tells of permits that others took: they are no debt once it is paid.
func TestWhatOthersTookWhileABillIsOnItsWayIsNoDebt(t *testing.T) {
	p := planOf(t, 1, FixedWindow(100, time.Hour).Named("hour"), PerDay(1000).Named("day"))
	s, now := newShare(), year2026US
	q := question{plan: p, key: "k", request: request{verb: verbCheck, cost: 10, now: now}}
	if a := s.decide(q, 1); !a.allowed {
		t.Fatal(a)
	}
	b, _ := s.billFor("k", p, now)
	if b == nil || b.owed[0] != 10 || b.owed[1] != 10 {
		t.Fatal(b)
	}
	s.learn("k", p, answer{set: p.set, left: []int64{70, 970}}, now)
	if s.settle("k", b, p, answer{set: p.set, charged: []int64{10, 10}}, nil, now) {
		t.Error("the key owes what others took")
	}
	if used := s.accounts["k"].used.usedOf(0, moment{now: now}); used != 40 {
		t.Errorf("%d are in use, expected 40", used)
	}
}

// A request that carries a bill and is still under way may charge it after another one charged nothing: so the next
// bill has the same id, under which Redis charges once.
func TestABillOfWhichNothingWasChargedKeepsItsID(t *testing.T) {
	p := planOf(t, 1, FixedWindow(100, time.Hour).Named("hour"))
	s, now := newShare(), year2026US
	s.decide(question{plan: p, key: "k", request: request{verb: verbCheck, cost: 10, now: now}}, 1)
	first, _ := s.billFor("k", p, now)
	for _, c := range []struct {
		charged int64
		same    bool
	}{{0, true}, {0, true}, {4, false}} {
		b, _ := s.billFor("k", p, now)
		if !s.settle("k", b, p, answer{set: p.set, charged: []int64{c.charged}}, nil, now) {
			t.Fatal("it owes the rest")
		}
		next, _ := s.billFor("k", p, now)
		if same := next.id == first.id; same != c.same || next.owed[0] != 10-c.charged {
			t.Errorf("charged %d: the same id: %v, owed %d", c.charged, same, next.owed[0])
		}
	}
}

// What is known of each rule is believed for two seconds against an answer that says less, whatever the others say.
func TestAnOlderAnswerTakesNothingBackOfAnyRule(t *testing.T) {
	p := planOf(t, 1, FixedWindow(100, time.Hour).Named("hour"), FixedWindow(1000, 24*time.Hour).Named("day"))
	s, now := newShare(), year2026US
	learn := func(at, hour, day int64) [2]int64 {
		s.learn("k", p, answer{set: p.set, left: []int64{100 - hour, 1000 - day}}, at)
		n := s.notes["k"]
		return [2]int64{n.usedOf(0, moment{now: at}), n.usedOf(1, moment{now: at})}
	}
	for i, c := range []struct{ at, hour, day, wantHour, wantDay int64 }{
		{0, 50, 50, 50, 50},
		{1_000_000, 40, 60, 50, 60},
		{1_999_999, 40, 40, 50, 60},
		{2_000_000, 40, 40, 40, 60},
		{1_500_000, 30, 30, 40, 60},
		{3_000_000, 30, 30, 30, 30},
	} {
		if got := learn(now+c.at, c.hour, c.day); got != [2]int64{c.wantHour, c.wantDay} {
			t.Errorf("%d: %v, expected %d, %d", i, got, c.wantHour, c.wantDay)
		}
	}
}
