package sluicegate

import (
	"context"
	"errors"
	"testing"
	"time"
)

// asleep is a clock whose sleepers wake only when their context ends.
type asleep struct {
	*manual
	began chan struct{}
}

func (c asleep) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c.began <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func TestACallerThatGoesAwayFreesItsPlace(t *testing.T) {
	clock := asleep{newManual(), make(chan struct{})}
	gate := newGate(t, clock, Compiled(compiledPolicies(t)))
	defer gate.Close()
	e := gate.decider.(engineDecider).e
	for name, want := range map[string]struct {
		err    *Error
		vacant int
	}{
		"queue-bucket": {ErrInterrupted, 1}, // its turn was booked, and is for the next one
		"queue-window": {ErrNotCharged, 0},  // a window books nothing
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if d, err := gate.Policy(name).Allow(ctx, "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		gone := make(chan error)
		go func() { _, err := gate.Policy(name).Allow(ctx, "k"); gone <- err }()
		<-clock.began
		e.queue.mu.Lock()
		held := e.queue.held
		e.queue.mu.Unlock()
		if held != 1 {
			t.Errorf("%s: %d are held while one waits", name, held)
		}
		cancel()
		if err := <-gone; !errors.Is(err, want.err) {
			t.Errorf("%s: %v", name, err)
		}
		if e.queue.held != 0 || e.queue.vacant != want.vacant {
			t.Errorf("%s: %d are held, %d turns vacant, expected none and %d", name, e.queue.held, e.queue.vacant, want.vacant)
		}
		e.queue.lapse(turn{stateKey(name, "k"), 1}, year2026US+10_000_000)
		if e.queue.vacant != 0 || len(e.queue.turns) != 0 {
			t.Errorf("%s: turns stay: %v", name, e.queue.turns)
		}
	}
}

func TestAWaitThatIsCancelledGivesItsPermitBack(t *testing.T) {
	clock := asleep{newManual(), make(chan struct{})}
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
	<-clock.began
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d, err := limit.Reserve(context.Background(), "k", 1, time.Minute)
	if err != nil || d.Pause() != time.Second {
		t.Errorf("%+v, %v, expected to wait for one permit, not for two", d, err)
	}
}
