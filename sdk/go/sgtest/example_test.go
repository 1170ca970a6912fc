package sgtest_test

import (
	"context"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func ExampleScript() {
	var t *testing.T // of your test

	gate := sgtest.Script(t, sgtest.Refuse(time.Second), sgtest.Allow(10, 9))
	// The program under test sends two requests, and does not sleep in between.
	if err := gate.Policy("orders").Wait(context.Background(), "alice"); err != nil {
		t.Error(err)
	}
}

func ExampleNewGate() {
	var t *testing.T // of your test

	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerSecond(1)))
	orders, ctx := gate.Policy("orders"), context.Background()
	if d, err := orders.Allow(ctx, "alice"); err != nil || !d.Allowed {
		t.Error(d, err)
	}
	if d, err := orders.Allow(ctx, "alice"); err != nil || d.Allowed {
		t.Error(d, err)
	}
	gate.Clock.Advance(time.Second)
	if d, err := orders.Allow(ctx, "alice"); err != nil || !d.Allowed {
		t.Error(d, err)
	}
}
