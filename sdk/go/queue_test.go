package sluicegate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

func TestAWaitThatIsCancelledGivesItsPermitBack(t *testing.T) {
	clock := testkit.NewAsleep()
	gate, err := InMemory(WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	limit, err := gate.Limit("mail", PerMinute(60).Burst(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := limit.Wait(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error)
	go func() { gone <- limit.Wait(ctx, "k") }()
	<-clock.Began
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d, err := limit.Reserve(context.Background(), "k", 1, time.Minute)
	if err != nil || d.Pause() != time.Second {
		t.Errorf("%+v, %v, expected to wait for one permit, not for two", d, err)
	}
}
