package sluicegate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func direct(t *testing.T, addr string, opts ...Option) *Gate {
	t.Helper()
	gate, err := Direct(dial(t, addr), append([]Option{App("shop"), Deadline(patient)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close() })
	return gate
}

// manual is a clock that stands still.
type manual struct {
	mu  sync.Mutex
	now time.Time
}

func (c *manual) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manual) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *manual) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() == nil {
		c.advance(d)
	}
	return ctx.Err()
}

func newManual() *manual { return &manual{now: time.UnixMicro(year2026US)} }

func newGate(t testing.TB, clock Clock, opts ...Option) *Gate {
	t.Helper()
	gate, err := InMemory(append([]Option{WithClock(clock)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

func TestAGateInMemory(t *testing.T) {
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock, Rules("a", PerSecond(10).Burst(2)))
	a := gate.Policy("a")
	for i, want := range []bool{true, true, false} {
		d, err := a.Allow(ctx, "k")
		if err != nil || d.Allowed != want {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
	}
	clock.advance(99 * time.Millisecond)
	d, _ := a.Allow(ctx, "k")
	var limited *LimitedError
	if d.Allowed || d.RetryAfter != time.Millisecond || d.Mode != ModeRemembered || !errors.As(d.Err(), &limited) ||
		!errors.Is(d.Err(), ErrLimited) || limited.Decision.Rule != "token_bucket" {
		t.Fatalf("%+v", d)
	}
	clock.advance(time.Millisecond)
	if d, _ := a.Allow(ctx, "k"); !d.Allowed || d.Remaining != 0 || d.Mode != ModeStore {
		t.Fatalf("%+v", d)
	}
	if d, _ := a.Refund(ctx, "k", 1); d.Granted != 1 {
		t.Fatalf("%+v", d)
	}
	if d, _ := a.AllowAtMost(ctx, "k", 9); d.Granted != 1 {
		t.Fatalf("%+v", d)
	}
	if d, _ := a.Reserve(ctx, "k", 1, time.Second); d.Pause() != 100*time.Millisecond {
		t.Fatalf("%+v", d)
	}
	if _, err := a.Reset(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if d, _ := a.Shared().Peek(ctx, "", 1); d.Remaining != 2 {
		t.Fatalf("%+v", d)
	}
	if err := a.WaitN(ctx, "k", 2); err != nil {
		t.Fatal(err)
	}
	before := clock.Now()
	if err := a.Wait(ctx, "k"); err != nil || clock.Now().Sub(before) != 100*time.Millisecond {
		t.Fatal(err, clock.Now().Sub(before))
	}
	if err := a.WaitN(ctx, "k", 3); !errors.As(err, &limited) || limited.Decision.CanRetry {
		t.Fatal(err)
	}
}

// A sliding counter once cut what it had counted to a lower limit: 100 to 37 and back let 63 more pass each time.
func TestALimitThatIsLoweredAndRaisedAgainGivesNothingBack(t *testing.T) {
	const day = 24 * time.Hour
	algorithms := map[string]func(limit int64) Rule{
		"sliding_counter": func(limit int64) Rule { return SlidingCounter(limit, day) },
		"fixed_window":    func(limit int64) Rule { return FixedWindow(limit, day) },
		"sliding_window":  func(limit int64) Rule { return SlidingWindow(limit, day).Buckets(24) },
		"sliding_log":     func(limit int64) Rule { return SlidingLog(limit, day) },
	}
	lives := []struct {
		limits []int64
		passed []int
	}{
		{[]int64{100, 37, 100, 37, 100, 37, 100}, []int{100, 0, 0, 0, 0, 0, 0}},
		{[]int64{10, 20, 10, 20}, []int{10, 10, 0, 0}},
	}
	for name, rule := range algorithms {
		for _, life := range lives {
			gate := newGate(t, newManual())
			for turn, limit := range life.limits {
				l, err := gate.Limit("quota", rule(limit))
				if err != nil {
					t.Fatal(err)
				}
				passed := 0
				for range 200 {
					d, err := l.Allow(context.Background(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						passed++
					}
				}
				if passed != life.passed[turn] {
					t.Errorf("%s, limits %v: %d passed in turn %d, expected %d", name, life.limits, passed, turn, life.passed[turn])
				}
			}
		}
	}
}

// What a counter has beyond a lower limit weighs at most what can be weighed exactly, which is more than the limit.
func TestWhatWasCountedUnderAMuchHigherLimitFillsASmallOne(t *testing.T) {
	const year, most = 366 * 24 * time.Hour, 1<<32 - 1
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock)
	counter := func(limit int64) *Limiter {
		l, err := gate.Limit("quota", SlidingCounter(limit, year))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if d, err := counter(most).AllowN(ctx, "k", CostMax); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if d, err := counter(1).Allow(ctx, "k"); err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if d, err := counter(most).Allow(ctx, "k"); err != nil || d.Remaining != most-CostMax-1 {
		t.Fatalf("it was not kept: %+v, %v", d, err)
	}
	clock.advance(year)
	if d, err := counter(1).Allow(ctx, "k"); err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestMistakesAreErrors(t *testing.T) {
	ctx := context.Background()
	gate := newGate(t, newManual(), Compiled(compiledPolicies(t)))
	a := gate.Policy("window")
	ask := func(l *Limiter, key string, n int64) error { _, err := l.AllowN(ctx, key, n); return err }
	for want, err := range map[*Error]error{
		ErrUnknownPolicy:   ask(gate.Policy("c"), "k", 1),
		ErrAppMissing:      ask(gate.Policy("partner"), "k", 1),
		ErrKeyEmpty:        ask(a, "", 1),
		ErrKeyLength:       ask(a, string(make([]byte, 1025)), 1),
		ErrCostRange:       ask(a, "k", 0),
		ErrMaxWaitRange:    func() error { _, err := a.Reserve(ctx, "k", 1, -1); return err }(),
		ErrIDLength:        func() error { _, err := a.AcquireN(ctx, "k", "", 1); return err }(),
		ErrUnsupportedVerb: func() error { _, err := a.Acquire(ctx, "k"); return err }(),
		ErrAppName:         func() error { _, err := InMemory(App("A")); return err }(),
		ErrNodesRange:      func() error { _, err := Direct(nil, Nodes(0)); return err }(),
		ErrDeadlineRange:   func() error { _, err := Direct(nil, Deadline(time.Minute)); return err }(),
		ErrRules:           func() error { _, err := gate.Limit("m", PerSecond(0)); return err }(),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, expected %s", err, want.Name)
		}
	}
	if err := ask(gate.Policy("c"), "k", 1); err.Error() != "policy: unknown policy `c`" {
		t.Error(err)
	}
}

func TestOverflowMeansForAcquireWhatItMeansForAllow(t *testing.T) {
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock, Compiled(compiledPolicies(t)))
	seen, later := gate.Policy("permits-shadow"), gate.Policy("permits-tag")
	held, err := seen.Acquire(ctx, "tenant")
	if err != nil || held.Decision.Overflow.Kind != OverflowNone {
		t.Fatal(held, err)
	}
	over, err := seen.AcquireN(ctx, "tenant", "over", 1)
	if err != nil || !over.Decision.Allowed || over.Decision.Overflow.Kind != OverflowShadow || over.Decision.Granted != 0 {
		t.Fatal(over, err)
	}
	over.Hold(ctx)
	if err := errors.Join(over.Renew(ctx), over.Release(ctx)); err != nil {
		t.Error(err)
	}
	for _, ask := range []func(context.Context, string, string) (Decision, error){seen.Renew, seen.Release} {
		if d, err := ask(ctx, "tenant", "over"); err != nil || !d.Allowed || d.Overflow.Kind != OverflowShadow {
			t.Errorf("by its id: %+v, %v", d, err)
		}
	}
	if d, err := seen.Peek(ctx, "tenant", 1); err != nil || d.Remaining != 0 {
		t.Errorf("the place of the other is held: %+v, %v", d, err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	if d, err := seen.Peek(ctx, "tenant", 1); err != nil || d.Remaining != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := later.AcquireN(ctx, "tenant", "first", 1); err != nil {
		t.Fatal(err)
	}
	var limited *LimitedError
	if _, err := later.Acquire(ctx, "tenant"); !errors.As(err, &limited) || limited.Decision.Overflow.Tag != "queue" {
		t.Error(err)
	}
	if d, err := later.Renew(ctx, "tenant", "second"); err != nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestPermitsOfConcurrency(t *testing.T) {
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock)
	jobs, err := gate.Limit("jobs", Concurrency(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := jobs.Acquire(ctx, "tenant")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Acquire(ctx, "tenant"); !errors.Is(err, ErrLimited) {
		t.Fatal(err)
	}
	clock.advance(50 * time.Second)
	if err := permit.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	clock.advance(50 * time.Second)
	if _, err := jobs.Acquire(ctx, "tenant"); !errors.Is(err, ErrLimited) {
		t.Fatal(err)
	}
	if err := permit.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := permit.Renew(ctx); !errors.Is(err, ErrLimited) {
		t.Fatal(err)
	}
}

func TestOverTheLimit(t *testing.T) {
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock, Compiled(compiledPolicies(t)))
	second := func(name string) Decision {
		t.Helper()
		var d Decision
		for range 2 {
			var err error
			if d, err = gate.Policy(name).Allow(ctx, "k"); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	if d := second("shadow"); !d.Allowed || d.Overflow.Kind != OverflowShadow {
		t.Errorf("%+v", d)
	}
	if d := second("tag"); d.Allowed || d.Overflow.Kind != OverflowDegrade || d.Overflow.Tag != "small" {
		t.Errorf("%+v", d)
	}
	if d := second("response"); d.Allowed || d.Overflow.Response.Status != 203 || d.Overflow.Response.Headers["x-a"] != "b" {
		t.Errorf("%+v", d)
	}
	if d := second("divert"); d.Allowed || d.Overflow.Target != "other" {
		t.Errorf("%+v", d)
	}
	if d := second("queue"); !d.Allowed || d.Held != 100*time.Millisecond || d.Pause() != 0 {
		t.Errorf("%+v", d)
	}
	gone, cancel := context.WithCancel(ctx)
	e := gate.decider.(engineDecider).e
	e.clock = leaving{clock, cancel}
	if _, err := gate.Policy("queue").Allow(gone, "k"); !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v", err)
	}
	e.clock = clock
	if d, _ := gate.Policy("queue").Allow(ctx, "k"); !d.Allowed || d.Held != 100*time.Millisecond {
		t.Errorf("the vacant turn was not taken: %+v", d)
	}
}

// leaving is a clock whose sleeper goes away.
type leaving struct {
	*manual
	cancel func()
}

func (c leaving) Sleep(ctx context.Context, _ time.Duration) error { c.cancel(); return ctx.Err() }

func TestTheBreaker(t *testing.T) {
	b, now := &breaker{}, int64(1_000_000)
	for range 4 {
		b.count(now, true)
	}
	if !b.allows(now) {
		t.Fatal("open after 4")
	}
	if b.count(now, true); b.allows(now) || b.allows(now+99_999) {
		t.Fatal("closed after 5 failures")
	}
	if !b.allows(now+300_001) || b.allows(now+300_001) {
		t.Fatal("one probe, and no other")
	}
	if b.count(now+300_001, false); !b.allows(now + 300_002) {
		t.Fatal("open after a success")
	}
	b = &breaker{}
	for i := range int64(20) {
		b.count(now+i*250_000, true)
	}
	if !b.allows(now + 20*250_000) {
		t.Fatal("4 failures a second opened it")
	}
}

func TestRefusalsAreRemembered(t *testing.T) {
	m, p := &remembered{}, planOf(t, 1, PerSecond(10).Burst(20))
	k := placeOf("a", "k")
	refused := answer{verdict: verdict{retry: 100_000, resetAfter: 2_000_000}, set: p.set}
	m.keep(string(k[:]), p, 1, 1_000_000, refused)
	a, ok := m.find(k, p, 1, 1_040_000)
	if !ok || a.retry != 60_000 || a.resetAfter != 1_960_000 {
		t.Fatalf("%+v", a)
	}
	if _, ok := m.find(k, p, 2, 1_040_000); ok {
		t.Fatal("another cost")
	}
	if _, ok := m.find(k, p, 1, 1_100_000); ok {
		t.Fatal("the retry has come")
	}
	refused.retry = never
	m.keep(string(k[:]), p, 1, 1_000_000, refused)
	for now, want := range map[int64]bool{1_999_999: true, 999_999: false} {
		if _, ok := m.find(k, p, 1, now); ok != want {
			t.Fatal(now)
		}
	}
	_, first := m.find(k, p, 1, 2_000_000)
	_, second := m.find(k, p, 1, 2_049_999)
	_, third := m.find(k, p, 1, 2_050_000)
	if first || !second || third {
		t.Fatal("one asks again, others get the old refusal for 50 ms")
	}
}

func TestTheExampleOfTheLocalShare(t *testing.T) {
	s, p := newShare(), planOf(t, 1, PerSecond(100).Burst(50))
	at := year2026US
	s.learn("k", p, answer{verdict: verdict{remaining: 10}, set: p.set}, at)
	for i, step := range []struct {
		ms, cost, remaining, retry, reset int64
		allowed                           bool
	}{
		{0, 1, 1, 0, 440_000, true}, {0, 1, 0, 0, 480_000, true}, {0, 1, 0, 20_000, 480_000, false},
		{0, 13, 0, 1_000_000, 480_000, false}, {0, 51, 0, never, 480_000, false}, {20, 1, 0, 0, 500_000, true},
	} {
		q := question{plan: p, key: "k", request: request{verb: verbCheck, cost: step.cost, now: at + step.ms*1000}}
		a := s.decide(q, 4)
		if a.allowed != step.allowed || a.remaining != step.remaining || a.retry != step.retry ||
			a.resetAfter != step.reset || a.set.rules[0].limit() != 12 {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if b, _ := s.billFor("k", p, at+20_000); b == nil || b.owed[0] != 3 {
		t.Errorf("%+v is owed, expected 3", b)
	}
}
