package sluicegate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
	clock.Advance(99 * time.Millisecond)
	d, _ := a.Allow(ctx, "k")
	var limited *LimitedError
	if d.Allowed || d.RetryAfter != time.Millisecond || d.Mode != ModeRemembered || !errors.As(d.Err(), &limited) ||
		!errors.Is(d.Err(), ErrLimited) || limited.Decision.Rule != "token_bucket" {
		t.Fatalf("%+v", d)
	}
	clock.Advance(time.Millisecond)
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
	histories := []struct {
		limits []int64
		passed []int
	}{
		{[]int64{100, 37, 100, 37, 100, 37, 100}, []int{100, 0, 0, 0, 0, 0, 0}},
		{[]int64{10, 20, 10, 20}, []int{10, 10, 0, 0}},
	}
	for name, rule := range algorithms {
		for _, history := range histories {
			gate := newGate(t, newManual())
			for turn, limit := range history.limits {
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
				if passed != history.passed[turn] {
					t.Errorf("%s, limits %v: %d passed in turn %d, expected %d", name, history.limits, passed, turn, history.passed[turn])
				}
			}
		}
	}
}

// Usage above a lower limit is capped at the most that is counted exactly, which is more than the limit.
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
	clock.Advance(year)
	if d, err := counter(1).Allow(ctx, "k"); err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestMistakesAreErrors(t *testing.T) {
	ctx := context.Background()
	gate := newGate(t, newManual(), Compiled(compiledPolicies(t)))
	a := gate.Policy("window")
	allow := func(l *Limiter, key string, n int64) error { _, err := l.AllowN(ctx, key, n); return err }
	for want, err := range map[*Error]error{
		ErrUnknownPolicy:   allow(gate.Policy("c"), "k", 1),
		ErrAppMissing:      allow(gate.Policy("partner"), "k", 1),
		ErrKeyEmpty:        allow(a, "", 1),
		ErrKeyLength:       allow(a, string(make([]byte, 1025)), 1),
		ErrCostRange:       allow(a, "k", 0),
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
	if err := allow(gate.Policy("c"), "k", 1); err.Error() != "policy: unknown policy `c`" {
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
	for _, allow := range []func(context.Context, string, string) (Decision, error){seen.Renew, seen.Release} {
		if d, err := allow(ctx, "tenant", "over"); err != nil || !d.Allowed || d.Overflow.Kind != OverflowShadow {
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
	clock.Advance(50 * time.Second)
	if err := permit.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	clock.Advance(50 * time.Second)
	if _, err := jobs.Acquire(ctx, "tenant"); !errors.Is(err, ErrLimited) {
		t.Fatal(err)
	}
	if err := permit.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := permit.Renew(ctx); !errors.Is(err, ErrNotHeld) {
		t.Fatal(err)
	}
}

func TestAnIDThatIsHeldIsNotCalledImpossible(t *testing.T) {
	ctx := context.Background()
	jobs, err := newGate(t, newManual()).Limit("jobs", Concurrency(9, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.AcquireN(ctx, "k", "a", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.AcquireN(ctx, "k", "a", 1); !errors.Is(err, ErrLimited) || err.Error() != "limited by `limit`; do not retry" {
		t.Error(err)
	}
}

func TestEveryObserverIsCalled(t *testing.T) {
	seen := ""
	by := func(name string) Option { return Observer(func(context.Context, Observation) { seen += name }) }
	gate := newGate(t, newManual(), Rules("a", PerSecond(1)), by("a"), Observer(nil), by("b"))
	if _, err := gate.Policy("a").Allow(context.Background(), "k"); err != nil || seen != "ab" {
		t.Errorf("%q, %v", seen, err)
	}
}

func TestAPingFindsOutWhetherThereIsAnAnswer(t *testing.T) {
	ctx, gone := context.Background(), freeAddr()
	paths := ""
	web := func(status int) *Gate {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			paths += r.Method + " " + r.URL.Path + " "
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		return remoteOf(t, server.URL+"/gate/")
	}
	if err := errors.Join(newGate(t, newManual()).Ping(ctx), ByFunc(nil).Ping(ctx), web(200).Ping(ctx)); err != nil || paths != "GET /gate/readyz " {
		t.Error(err, paths)
	}
	if err := web(503).Ping(ctx); !asServer(err, 503) || err.Error() != "server: 503 is not ready" {
		t.Error(err)
	}
	closed := remoteOf(t, "resp://"+gone)
	if err := errors.Join(closed.Close(), closed.Close()); err != nil {
		t.Error(err)
	}
	for _, gate := range []*Gate{direct(t, gone), remoteOf(t, "http://"+gone), remoteOf(t, "resp://"+gone), closed} {
		if err := gate.Ping(ctx); !errors.Is(err, ErrNotCharged) {
			t.Error(err)
		}
	}
	if err := direct(t, redisAddr(t)).Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestOverTheLimit(t *testing.T) {
	clock, ctx := &leaving{manual: newManual()}, context.Background()
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
	clock.leave = cancel
	if _, err := gate.Policy("queue").Allow(gone, "k"); !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v", err)
	}
	clock.leave = nil
	if d, _ := gate.Policy("queue").Allow(ctx, "k"); !d.Allowed || d.Held != 100*time.Millisecond {
		t.Errorf("the vacant turn was not taken: %+v", d)
	}
}

// leaving is a clock whose sleepers go away, if it has a way to leave.
type leaving struct {
	*manual
	leave func()
}

func (c *leaving) Sleep(ctx context.Context, d time.Duration) error {
	if c.leave == nil {
		return c.manual.Sleep(ctx, d)
	}
	c.leave()
	return ctx.Err()
}
