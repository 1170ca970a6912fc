package sluicegate

import (
	"context"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Request is a request to a gate that [ByFunc] made.
type Request struct {
	// Policy is the name of the policy, or of the limit made in code.
	Policy string
	// Verb is `check`, `reserve`, `at_most`, `peek`, `refund`, `reset`, `acquire`, `release` or `renew`.
	Verb string
	// Key is empty for the budget that all share.
	Key string
	// Cost is 1 to 2^31, and 0 of verbs that have none.
	Cost int64
	// MaxWait is the longest wait of a `reserve`, and of an `acquire` by [Limiter.AcquireWithin].
	MaxWait time.Duration
	// ID is that of the permit, of `acquire`, `release` and `renew`.
	ID string
}

// ByFunc returns a gate that decides by a function, for tests of programs: [sgtest.Script] has one that answers in an order.
// The values of a request are checked before, as by every gate. Requests may come from several goroutines at a time.
// No time passes: Wait and Decision.Sleep do not sleep, and Permit.Hold renews nothing.
//
// [sgtest.Script]: https://pkg.go.dev/github.com/sluicegate/sluicegate/sdk/go/sgtest#Script
func ByFunc(decide func(context.Context, Request) (Decision, error)) *Gate {
	return &Gate{decider: byFunc(decide), inCode: true, clock: noTime{}, ownClock: noTime{}}
}

type byFunc func(context.Context, Request) (Decision, error)

func (f byFunc) decide(ctx context.Context, request engine.Request) (Decision, error) {
	out := Request{Policy: request.Policy, Verb: request.Verb.String(), Key: request.Key, Cost: request.Cost, ID: request.ID}
	if request.Verb == kernel.VerbReserve || request.Waits {
		out.MaxWait = kernel.Span(request.MaxWait)
	}
	return f(ctx, out)
}

func (f byFunc) ping(context.Context) error { return nil }

func (f byFunc) endpoint() (kind, address string) { return "", "" }

func (f byFunc) close() error { return nil }

// noTime is a clock by which nobody has to wait.
type noTime struct{}

// Now returns the time of the machine, of which the deadlines of contexts are.
func (noTime) Now() time.Time { return time.Now() }

// Sleep returns at once.
func (noTime) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
