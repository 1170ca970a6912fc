// Package sgtest provides a gate for tests. It decides in memory, as a program without Redis does, on a clock that only the
// test moves.
package sgtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

// Gate is a gate in memory, and its clock. [NewGate] makes it; the zero value is not usable.
type Gate struct {
	*sluicegate.Gate
	// Clock is the clock of the gate.
	Clock *Clock
}

// NewGate makes a gate of options: its policies are those of [sluicegate.Rules] and [sluicegate.Compiled]. It fails the test if one of them is not valid, and closes the
// gate when the test ends. It logs nothing, unless [sluicegate.Logger] is given.
func NewGate(t testing.TB, options ...sluicegate.Option) *Gate {
	t.Helper()
	clock := &Clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	gate, err := sluicegate.InMemory(append([]sluicegate.Option{sluicegate.WithClock(clock), sluicegate.Logger(nil)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gate.Close() })
	return &Gate{gate, clock}
}

// Clock is a clock that stands until Advance moves it. It begins when 2026 does.
type Clock struct {
	mu       sync.Mutex
	now      time.Time
	sleepers []sleeper
}

type sleeper struct {
	until time.Time
	wake  chan struct{}
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock and wakes all sleepers whose time has come.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.sleepers = slices.DeleteFunc(c.sleepers, func(s sleeper) bool {
		due := !s.until.After(c.now)
		if due {
			close(s.wake)
		}
		return due
	})
}

// Sleepers returns how many goroutines wait for the clock: in Wait, Decision.Sleep and Hold, and in a queue.
func (c *Clock) Sleepers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sleepers)
}

// Sleep waits until Advance has moved the clock by d, or returns the context's error if that ends before.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	wake := make(chan struct{})
	c.mu.Lock()
	c.sleepers = append(c.sleepers, sleeper{c.now.Add(d), wake})
	c.mu.Unlock()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		c.forget(wake)
		return ctx.Err()
	}
}

func (c *Clock) forget(wake chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sleepers = slices.DeleteFunc(c.sleepers, func(s sleeper) bool { return s.wake == wake })
}
