package sluicegate

import (
	"context"
	"time"
)

// endAfter is the part of the deadline by which a question may come late that waits for a connection, and endAfterMax the
// most: small beside the 10 ms that a call may be late, and enough for a few questions at a time.
const (
	endAfter    = 50
	endAfterMax = 5 * time.Millisecond
)

// end is when questions end whose deadlines are shortly before: one timer for all of them.
type end struct {
	at   time.Time
	done chan struct{}
}

// limited is a context with a deadline. Reads and writes end at the deadline itself, and waits for a connection at the
// end.
type limited struct {
	context.Context
	deadline time.Time
	done     chan struct{}
}

func (c *limited) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *limited) Done() <-chan struct{}       { return c.done }

func (c *limited) Err() error {
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

func nothing() {}

// within gives a context that ends at the deadline of a question which begins now.
func (s *redisStore) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || ctx.Done() != nil {
		return context.WithTimeout(ctx, s.deadline)
	}
	deadline := time.Now().Add(s.deadline)
	e := s.end.Load()
	if e == nil || e.at.Before(deadline) {
		after := min(s.deadline/endAfter, endAfterMax)
		e = &end{deadline.Add(after), make(chan struct{})}
		time.AfterFunc(s.deadline+after, func() { close(e.done) })
		s.end.Store(e)
	}
	return &limited{ctx, deadline, e.done}, nothing
}
