// Package inflight holds permits for as long as requests are served, for the middlewares of all frameworks.
package inflight

import (
	"context"
	"errors"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/unnamed"
)

// NoWait is the longest wait of requests that the middleware does not let wait.
const NoWait = unnamed.NoWait

// releaseWithin is how long the end of a request waits for the release of its permit: a client that sends the next request after the
// answer finds it free then. A server that does not answer delays answers no longer than that.
const releaseWithin = 100 * time.Millisecond

// Budget is what a request acquires permits of.
type Budget struct {
	Limiter *sluicegate.Limiter
	Key     string
}

// Acquire acquires permits for a request. The permit is nil unless the decision allows it; an error means that there is no decision.
func Acquire(ctx context.Context, of Budget, cost int64, maxWait time.Duration) (*sluicegate.Permit, sluicegate.Decision, error) {
	got, err := unnamed.Acquire(ctx, of.Limiter, of.Key, cost, maxWait)
	var limited *sluicegate.LimitedError
	if errors.As(err, &limited) {
		return nil, limited.Decision, nil
	}
	if err != nil {
		return nil, sluicegate.Decision{}, err
	}
	permit := got.(*sluicegate.Permit) // as Acquire says
	return permit, permit.Decision, nil
}

// Hold renews a permit until release is called, also after ctx has ended: the handler may go on then. It returns the context for the
// handler, which ends with ctx, or when the permit is lost. A nil permit holds nothing.
func Hold(ctx context.Context, permit *sluicegate.Permit) (work context.Context, release func()) {
	if permit == nil {
		return ctx, func() {}
	}
	held := permit.Hold(context.WithoutCancel(ctx))
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return work, func() {
		stop()
		cancel(context.Canceled)
		releaseSoon(context.WithoutCancel(ctx), permit)
	}
}

// releaseSoon releases a permit, and waits for that no longer than releaseWithin. What takes longer ends by the deadline of the gate. If it
// fails, the permit lapses after its ttl.
func releaseSoon(ctx context.Context, permit *sluicegate.Permit) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = permit.Release(ctx)
	}()
	timer := time.NewTimer(releaseWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
