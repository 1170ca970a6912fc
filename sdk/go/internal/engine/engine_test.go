package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// compiled compiles the rules of a policy `a` that was taken over at an instant.
func compiled(t testing.TB, instant int64, rules ...kernel.Spec) *wire.CompiledRules {
	t.Helper()
	return wire.NewPolicyRules("a", testkit.Set(t, rules...), instant)
}

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

// busyStore answers some requests too late.
type busyStore struct{ late bool }

func (s *busyStore) Decide(_ context.Context, q store.Request) (store.Answer, *wire.Failure) {
	if s.late {
		return store.Answer{}, &wire.Failure{Class: wire.ClassOverloaded, Cause: context.DeadlineExceeded}
	}
	return store.Answer{Verdict: kernel.Verdict{Allowed: true, Granted: 1}, Set: q.Rules.Set}, nil
}

func TestABusyRedisIsLoggedUntilItHasDecidedInTimeForAWhile(t *testing.T) {
	clock, backend, out := testkit.NewManual(), &busyStore{}, &strings.Builder{}
	e := New(Config{Policies: policy.NewCatalog(nil, time.Now), Clock: clock, Notices: notice.New(slog.New(slog.NewTextHandler(out, nil)), clock.Now)})
	e.store = backend
	e.Policies.Hold(policy.FromRules("a", testkit.Set(t, testkit.Window(9, time.Hour)), 1))
	for i, c := range []struct {
		late  bool
		after time.Duration
		lines int
	}{{true, 0, 1}, {false, time.Second, 1}, {true, time.Second, 1}, {false, 9 * time.Second, 1}, {false, time.Second, 2}, {false, time.Second, 2}} {
		clock.Advance(c.after)
		backend.late = c.late
		got, err := e.Decide(context.Background(), Request{Policy: "a", Key: "k", Verb: kernel.VerbCheck, Cost: 1})
		if err != nil || got.Allowed == c.late || (got.Mode == ModeShed) != c.late {
			t.Fatalf("%d: %+v, %v", i, got, err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != c.lines {
			t.Errorf("%d: %s", i, out)
		}
	}
	if text := out.String(); !strings.Contains(text, "redis does not decide in time") || !strings.Contains(text, "redis decides in time again") {
		t.Error(text)
	}
}

func TestAPolicyThatIsGoneTakesItsDebtsAlong(t *testing.T) {
	e := &Engine{Config: Config{Policies: policy.NewCatalog(nil, time.Now), Clock: testkit.NewManual()}, share: store.NewShare()}
	p := compiled(t, 1, testkit.Window(20, time.Hour))
	e.share.Decide(store.Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: e.nowUS()}}, 1)
	if owing := len(e.share.Debtors(2)); owing != 1 {
		t.Fatalf("%d keys owe something, expected 1", owing)
	}
	e.pay(context.Background()) // it has no store
	if owing := len(e.share.Debtors(2)); owing != 0 {
		t.Errorf("%d keys owe something, expected none", owing)
	}
}

// countingStore counts the debts that it gets to charge, and does not answer.
type countingStore struct{ charged int }

func (s *countingStore) Decide(_ context.Context, q store.Request) (store.Answer, *wire.Failure) {
	if q.Debt != nil {
		s.charged++
	}
	return store.Answer{}, &wire.Failure{Class: wire.ClassCaller, Cause: context.Canceled}
}

func TestAPolicyOfALaterVersionLeavesItsDebtsToBeCharged(t *testing.T) {
	backend := &countingStore{}
	catalog := policy.NewCatalog(nil, time.Now)
	e := &Engine{Config: Config{Policies: catalog, Clock: testkit.NewManual()}, share: store.NewShare(), store: backend}
	p := compiled(t, 1, testkit.Window(20, time.Hour))
	e.share.Decide(store.Request{Rules: p, Key: "k", Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: e.nowUS()}}, 1)
	catalog.Take(map[string]string{"#format": "1", "#revision": "1", p.Policy: `{"record":2}`}, false)
	e.pay(context.Background())
	if owing := len(e.share.Debtors(2)); owing != 1 || backend.charged != 1 {
		t.Errorf("%d keys owe something, %d were charged, expected 1 and 1", owing, backend.charged)
	}
}

func TestADebtIsChargedBeforeTheRequest(t *testing.T) {
	client, ctx := testkit.Dial(t, testkit.RedisAddr(t)), context.Background()
	e := &Engine{
		Config: Config{Policies: policy.NewCatalog(nil, time.Now), Clock: NewWallClock()}, share: store.NewShare(),
		store: store.NewRedis(wire.Conn{Client: client}, time.Second, time.Now, func() wire.Clock { return wire.ClockServer }),
	}
	p := compiled(t, 1, testkit.Window(20, time.Hour))
	now := e.nowUS()
	q := store.Request{Rules: p, Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 10, Now: now}}
	e.share.Decide(q, 1)
	q.Cost = 1
	a, f := e.decideWithDebt(ctx, q)
	if f != nil || a.Remaining != 9 || a.Charged[0] != 10 {
		t.Fatalf("%+v, %v", a, f)
	}
	if a, f = e.decideWithDebt(ctx, q); f != nil || a.Remaining != 8 || a.Charged != nil {
		t.Fatalf("%+v, %v", a, f)
	}
}

func TestACallerThatGoesAwayFreesItsPlace(t *testing.T) {
	clock, catalog := testkit.NewAsleep(), policy.NewCatalog(nil, time.Now)
	records, err := policy.ReadFile(testkit.CompiledPolicies(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range records {
		catalog.Hold(p)
	}
	e := New(Config{Policies: catalog, Clock: clock})
	for name, want := range map[string]struct{ vacant int }{
		"queue-bucket": {1}, // its turn was booked, and is for the next one
		"queue-window": {0}, // a window books nothing
	} {
		ctx, cancel := context.WithCancel(context.Background())
		request := Request{Policy: name, Key: "k", Verb: kernel.VerbCheck, Cost: 1}
		if got, err := e.Decide(ctx, request); err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		gone := make(chan error)
		go func() { _, err := e.Decide(ctx, request); gone <- err }()
		<-clock.Began
		e.queue.mu.Lock()
		held := e.queue.held
		e.queue.mu.Unlock()
		if held != 1 {
			t.Errorf("%s: %d are held while one waits", name, held)
		}
		cancel()
		var f *wire.Failure
		if err := <-gone; !errors.As(err, &f) || f.Class != wire.ClassCaller || f.Charged != (want.vacant > 0) {
			t.Errorf("%s: %v", name, err)
		}
		if e.queue.held != 0 || e.queue.vacant != want.vacant {
			t.Errorf("%s: %d are held, %d turns vacant, expected none and %d", name, e.queue.held, e.queue.vacant, want.vacant)
		}
		e.queue.dropDue(turn{key: wire.StateKey(name, "k"), cost: 1}, kernel.Year2026US+10_000_000)
		if e.queue.vacant != 0 || len(e.queue.turns) != 0 {
			t.Errorf("%s: turns stay: %v", name, e.queue.turns)
		}
	}
}

// halfReachable decides by a memory what is asked under one key after `answers` is closed, as a connection that is made at last, and fails
// everything else at once, as one that was not.
type halfReachable struct {
	store.Store
	slow    int64 // the cost that is decided late
	asked   chan struct{}
	answers chan struct{}
}

func (s *halfReachable) Decide(ctx context.Context, q store.Request) (store.Answer, *wire.Failure) {
	if q.Cost != s.slow {
		return store.Answer{}, &wire.Failure{Class: wire.ClassNoAnswer, Cause: errors.New("no connection")}
	}
	s.asked <- struct{}{}
	<-s.answers
	return s.Store.Decide(ctx, q)
}

func TestWhatIsUnderWayIsNoReasonForAShare(t *testing.T) {
	for name, rule := range map[string]kernel.Spec{"window": testkit.Window(20, time.Hour), "bucket": testkit.Bucket(20, time.Hour, 20)} {
		clock := testkit.NewManual()
		backend := &halfReachable{store.NewMemory(), 3, make(chan struct{}), make(chan struct{})}
		e := New(Config{Policies: policy.NewCatalog(nil, time.Now), Clock: clock, Logger: slog.New(slog.DiscardHandler), Notices: notice.New(slog.New(slog.DiscardHandler), clock.Now)})
		e.store, e.redis = backend, store.NewRedis(wire.Conn{Client: testkit.Dial(t, testkit.FreeAddr())}, time.Second, clock.Now, nil)
		e.Policies.Hold(policy.FromRules("a", testkit.Set(t, rule), 1))
		ask := func(verb kernel.Verb, cost int64) Outcome {
			got, err := e.Decide(context.Background(), Request{Policy: "a", Key: "k", Verb: verb, Cost: cost})
			if err != nil {
				t.Error(err)
			}
			return got
		}
		late := make(chan Outcome)
		go func() { late <- ask(kernel.VerbCheck, 3) }()
		<-backend.asked
		admitted, soon := int64(0), 0
		for range 25 {
			got := ask(kernel.VerbCheck, 1)
			admitted += got.Granted
			if got.Mode != ModeLocal {
				t.Errorf("%s: %+v", name, got)
			}
			if !got.Allowed && got.Retry == 100_000 {
				soon++
			}
		}
		if got := ask(kernel.VerbAtMost, 5); got.Allowed || got.Granted != 0 || got.Retry != 100_000 {
			t.Errorf("%s: at most: %+v", name, got)
		}
		close(backend.answers)
		got := <-late
		if !got.Allowed || got.Mode != ModeStore || admitted != 17 || soon != 8 {
			t.Errorf("%s: %d by the share and %+v by the store of 20, %d may ask again soon", name, admitted, got, soon)
		}
		// The share is at its end now, and not only until others are answered.
		if got := ask(kernel.VerbCheck, 1); got.Allowed || got.Mode != ModeLocal || got.Retry <= 100_000 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
