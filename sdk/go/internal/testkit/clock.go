package testkit

import (
	"context"
	"sync"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Manual is a clock that stands still.
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time of the clock.
func (c *Manual) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Manual) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Sleep moves the clock, and returns at once.
func (c *Manual) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() == nil {
		c.Advance(d)
	}
	return ctx.Err()
}

// NewManual returns a clock that stands at the beginning of 2026.
func NewManual() *Manual { return &Manual{now: time.UnixMicro(kernel.Year2026US)} }

// Set moves the clock to an instant in µs since 1970.
func (c *Manual) Set(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = time.UnixMicro(us)
}

// Asleep is a clock whose sleepers wake only when their context ends.
type Asleep struct {
	*Manual
	Began chan struct{}
}

// Sleep waits until the context ends.
func (c Asleep) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c.Began <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// NewAsleep returns a clock at the beginning of 2026.
func NewAsleep() Asleep { return Asleep{NewManual(), make(chan struct{})} }
