package sgtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestTheClockIsMovedByTheTest(t *testing.T) {
	gate := guardtest.Policies(t)
	a, ctx := gate.Policy("queue-bucket"), context.Background()
	if d, err := a.Allow(ctx, "k"); err != nil || d.Held != 0 {
		t.Fatal(d, err)
	}
	done := make(chan sluicegate.Decision)
	go func() {
		d, _ := a.Allow(ctx, "k")
		done <- d
	}()
	for gate.Clock.Sleepers() == 0 {
		time.Sleep(time.Millisecond)
	}
	gate.Clock.Advance(time.Second)
	if d := <-done; !d.Allowed || d.Held != time.Second {
		t.Fatalf("%+v", d)
	}
	gone, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() { failed <- a.Wait(gone, "k") }()
	for gate.Clock.Sleepers() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if d, _ := a.Reserve(ctx, "k", 1, time.Minute); d.Wait != time.Second {
		t.Fatalf("what was booked was not given back: %+v", d)
	}
}

func TestAScriptAnswersInItsOrder(t *testing.T) {
	ctx := context.Background()
	gate := sgtest.Script(t, sgtest.Allow(10, 9), sgtest.Refuse(time.Second), sgtest.Fail(sluicegate.ErrPerhapsCharged), sgtest.Refuse(-1), sgtest.Allow(2, 1))
	orders := gate.Policy("orders")
	if d, err := orders.AllowN(ctx, "alice", 3); err != nil || !d.Allowed || d.Granted != 3 || d.Remaining != 9 || d.Limit != 10 || d.Policy != "orders" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := orders.Allow(ctx, "alice"); err != nil || d.Allowed || !d.CanRetry || d.RetryAfter != time.Second {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := orders.Refund(ctx, "alice", 1); !errors.Is(err, sluicegate.ErrPerhapsCharged) {
		t.Error(err)
	}
	if d, err := orders.Allow(ctx, "alice"); err != nil || d.Allowed || d.CanRetry {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := orders.AllowN(ctx, "alice", 0); !errors.Is(err, sluicegate.ErrCostRange) {
		t.Errorf("a mistake of the program takes an outcome: %v", err)
	}
	limit, err := gate.Limit("mail", sluicegate.PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := limit.Reserve(ctx, "alice", 1, time.Minute); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestNoTimePassesInAScript(t *testing.T) {
	ctx, started := context.Background(), time.Now()
	gate := sgtest.Script(t, sgtest.Refuse(time.Hour), sgtest.Allow(10, 9), sgtest.Refuse(time.Hour))
	if err := gate.Policy("orders").Wait(ctx, "alice"); err != nil {
		t.Error(err)
	}
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := gate.Policy("orders").Wait(soon, "alice"); !errors.Is(err, sluicegate.ErrLimited) {
		t.Error(err)
	}
	requests := 0
	delays := sluicegate.ByFunc(func(context.Context, sluicegate.Request) (sluicegate.Decision, error) {
		requests++
		return sluicegate.Decision{Allowed: true, Wait: time.Hour, ResetAfter: time.Microsecond}, nil
	}).Policy("orders")
	d, err := delays.Allow(ctx, "alice")
	if err = errors.Join(err, d.Sleep(ctx)); err != nil {
		t.Error(err)
	}
	permit, err := delays.Acquire(ctx, "alice")
	if err != nil {
		t.Fatal(err)
	}
	held := permit.Hold(ctx)
	time.Sleep(10 * time.Millisecond)
	if err := errors.Join(held.Err(), permit.Release(ctx), permit.Release(ctx)); err != nil || requests != 3 || held.Err() == nil {
		t.Errorf("%v, %d requests, %v", err, requests, held.Err())
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("%v", took)
	}
}

func TestADecisionSleepsByTheClockOfItsGate(t *testing.T) {
	ctx := context.Background()
	gate := sgtest.NewGate(t, sluicegate.Rules("mails", sluicegate.LeakyBucket(1, time.Hour).Burst(9)))
	mails := gate.Policy("mails")
	first, err := mails.Allow(ctx, "k")
	if err = errors.Join(err, first.Sleep(ctx)); err != nil || first.Pause() != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := mails.Allow(ctx, "k")
	if err != nil || !second.Allowed || second.Pause() != time.Hour {
		t.Fatalf("%+v, %v", second, err)
	}
	slept := make(chan error)
	go func() { slept <- second.Sleep(ctx) }()
	awaitSleepers(gate, 1)
	gate.Clock.Advance(time.Hour)
	if err := <-slept; err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := second.Sleep(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := (sluicegate.Decision{Allowed: true, Wait: time.Microsecond}).Sleep(ctx); err != nil {
		t.Error(err)
	}
}

// awaitSleepers waits until so many goroutines wait for the clock.
func awaitSleepers(gate *sgtest.Gate, n int) {
	for gate.Clock.Sleepers() != n {
		time.Sleep(time.Millisecond)
	}
}

// hold acquires the only permit of a rule with a ttl of a minute, and holds it.
func hold(t *testing.T, gate *sgtest.Gate) (*sluicegate.Limiter, *sluicegate.Permit, context.Context) {
	t.Helper()
	jobs, err := gate.Limit("jobs", sluicegate.Concurrency(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := jobs.Acquire(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	held := permit.Hold(context.Background())
	awaitSleepers(gate, 1)
	return jobs, permit, held
}

func TestAPermitThatIsLostEndsTheContextOfHold(t *testing.T) {
	ctx, gate := context.Background(), sgtest.NewGate(t)
	jobs, permit, held := hold(t, gate)
	for range 9 { // three times the ttl
		gate.Clock.Advance(20 * time.Second)
		awaitSleepers(gate, 1)
	}
	if _, err := jobs.Acquire(ctx, "k"); !errors.Is(err, sluicegate.ErrLimited) || held.Err() != nil {
		t.Fatal(err, held.Err())
	}
	if _, err := jobs.Release(ctx, "k", permit.ID); err != nil { // as if it had lapsed
		t.Fatal(err)
	}
	if _, err := jobs.Acquire(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	gate.Clock.Advance(20 * time.Second)
	<-held.Done()
	if cause := context.Cause(held); cause != sluicegate.ErrNotHeld {
		t.Error(cause)
	}
	awaitSleepers(gate, 0)
	if err := permit.Renew(ctx); !errors.Is(err, sluicegate.ErrNotHeld) {
		t.Error(err)
	}
	if again := permit.Hold(ctx); again != held {
		t.Error("another context")
	}
	if err := permit.Release(ctx); err != nil {
		t.Error(err)
	}
	if _, err := jobs.Acquire(ctx, "k"); !errors.Is(err, sluicegate.ErrLimited) {
		t.Errorf("the permit of another was released: %v", err)
	}
}

// Its ttl runs from when it was acquired, so waiting a third of the ttl first would lose it.
func TestAPermitThatIsHeldLateIsRenewedAtOnce(t *testing.T) {
	ctx, gate := context.Background(), sgtest.NewGate(t)
	jobs, err := gate.Limit("jobs", sluicegate.Concurrency(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := jobs.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	gate.Clock.Advance(59 * time.Second)
	held := permit.Hold(ctx)
	awaitSleepers(gate, 1)
	gate.Clock.Advance(19 * time.Second)
	if _, err := jobs.Acquire(ctx, "k"); !errors.Is(err, sluicegate.ErrLimited) || held.Err() != nil {
		t.Error(err, held.Err())
	}
}

func TestAPermitThatCannotBeRenewedForItsTTLIsLost(t *testing.T) {
	clock := sgtest.NewGate(t).Clock
	gate := &sgtest.Gate{Clock: clock}
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests > 4 { // acquired, and renewed three times
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"allowed":true,"granted":1,"wait_us":0,"limit":1,"rule":"r","remaining":0,"retry_after_us":0,"reset_after_us":60000000}`)
	}))
	defer server.Close()
	var err error
	if gate.Gate, err = sluicegate.Remote(server.URL, sluicegate.WithClock(clock)); err != nil {
		t.Fatal(err)
	}
	permit, err := gate.Policy("jobs").Acquire(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	held := permit.Hold(context.Background())
	for range 5 {
		awaitSleepers(gate, 1)
		clock.Advance(20 * time.Second)
	}
	if awaitSleepers(gate, 1); held.Err() != nil {
		t.Fatal(context.Cause(held))
	}
	clock.Advance(20 * time.Second)
	<-held.Done()
	if cause := context.Cause(held); cause != sluicegate.ErrNotHeld {
		t.Error(cause)
	}
}

func TestHoldAndReleaseMayBeCalledAgain(t *testing.T) {
	ctx, gate := context.Background(), sgtest.NewGate(t)
	jobs, permit, held := hold(t, gate)
	if permit.Hold(ctx) != held || gate.Clock.Sleepers() != 1 {
		t.Errorf("%d sleepers", gate.Clock.Sleepers())
	}
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			permit.Hold(ctx)
			if err := permit.Release(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if held.Err() == nil || context.Cause(held) != context.Canceled || gate.Clock.Sleepers() != 0 {
		t.Error(context.Cause(held), gate.Clock.Sleepers())
	}
	late, err := jobs.Acquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if ended := late.Hold(ctx); context.Cause(ended) != sluicegate.ErrNotHeld || gate.Clock.Sleepers() != 0 {
		t.Error(context.Cause(ended), gate.Clock.Sleepers())
	}
}

// failing is a test that must not pass.
type failing struct {
	testing.TB
	errors  int
	cleanup func()
}

func (f *failing) Helper()               {}
func (f *failing) Cleanup(do func())     { f.cleanup = do }
func (f *failing) Errorf(string, ...any) { f.errors++ }

func TestAScriptFailsATestOfMoreOrFewerRequests(t *testing.T) {
	more, less := &failing{TB: t}, &failing{TB: t}
	if _, err := sgtest.Script(more).Policy("a").Allow(context.Background(), "k"); err == nil || more.errors != 1 {
		t.Errorf("%v, %d errors", err, more.errors)
	}
	sgtest.Script(less, sgtest.Allow(1, 0))
	if less.cleanup(); less.errors != 1 {
		t.Errorf("%d errors", less.errors)
	}
}
