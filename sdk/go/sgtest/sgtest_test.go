package sgtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestTheClockIsMovedByTheTest(t *testing.T) {
	gate := sgtest.NewGate(t, sgtest.Policy(`{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"overflow":{"queue":{"max_wait":"5s"}}}`))
	a, ctx := gate.Policy("a"), context.Background()
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
