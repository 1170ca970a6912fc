package sluicegate

import (
	"context"
	"time"
)

// Clock is the time by which a gate works. A test brings its own.
type Clock interface {
	// Now returns the present time; it should not jump.
	Now() time.Time
	// Sleep waits for d, or returns the error of the context if that ends before.
	Sleep(ctx context.Context, d time.Duration) error
}

// wallClock is the clock of the machine. It does not jump when that is set: it goes on from when it was made.
type wallClock struct{ start time.Time }

func (c wallClock) Now() time.Time { return c.start.Add(time.Since(c.start)) }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	return sleep(ctx, d)
}
