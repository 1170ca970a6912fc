package sgtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/guardtest"
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
