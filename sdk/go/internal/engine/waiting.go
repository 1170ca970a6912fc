package engine

import (
	"context"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// lookEveryUS is how often the first waiting request of a key asks again: a third of the time for which its ticket counts.
	lookEveryUS = 1_000_000
	// lookMinUS is the shortest such time.
	lookMinUS = 1_000
	// lookWithoutStoreUS is how often a request asks the share while Redis is away: there are no tickets, and nothing calls it.
	lookWithoutStoreUS = 20_000
)

// ticket is the place of a request that waits. It is given back unless the store has granted the permit or refused the request.
type ticket struct {
	*waiter
	request Request
	isOver  bool // there is none in Redis
	// isUnsure reports whether a question may have got the permit, and its answer was lost.
	isUnsure bool
}

// decideWaiting acquires a permit for a request, and waits for it up to MaxWait. A question to Redis that is under way as the
// context ends is awaited, so that it is known what it got.
func (e *Engine) decideWaiting(ctx context.Context, p *policy.Policy, request Request) (Outcome, error) {
	if !p.RulesFor(request.Key, e.nowUS()).Set.Supports(kernel.VerbWait) {
		return Outcome{}, policyErrorOf("unsupported_verb",
			"op: `acquire` is not supported by policy `%s`: not every `concurrency` rule has a `queue`, so no request can wait for a permit", p.Name)
	}
	if err := ctx.Err(); err != nil {
		return Outcome{}, &wire.Failure{Class: wire.ClassCaller, Cause: err}
	}
	one := e.waiters.enter(wire.StateKey(p.Name, request.Key), kernel.PermitOf(request.ID))
	if one == nil || !e.queue.enter() {
		if one != nil {
			e.waiters.leave(one)
		}
		return e.decideNow(ctx, p, request)
	}
	defer e.queue.leave()
	t := &ticket{waiter: one, request: request, isOver: true}
	outcome, err := e.awaitPermit(ctx, p, t)
	e.waiters.leave(one)
	e.giveBack(context.WithoutCancel(ctx), t)
	outcome.Verb = kernel.VerbAcquire
	return outcome, err
}

// awaitPermit asks until the request has an answer that it does not wait on, or its time is over.
func (e *Engine) awaitPermit(ctx context.Context, p *policy.Policy, t *ticket) (Outcome, error) {
	began, askedBefore := e.nowUS(), false
	until := began + min(t.request.MaxWait, kernel.SpanMaxUS-began)
	var last Outcome // the refusal, if it waits no longer
	for {
		askedAt := e.nowUS()
		outcome, err := e.askWith(ctx, p, t, kernel.VerbWait)
		if err != nil && !askedBefore {
			return Outcome{}, err
		}
		if err != nil {
			return last, nil
		}
		if askedBefore {
			outcome.HeldUS = e.nowUS() - began
		}
		isFirst := outcome.Granted == 0 && e.waiters.keepPresent(t.waiter, askedAt)
		pause, waits := pauseOf(outcome, askedBefore)
		if !waits {
			t.isUnsure = t.isUnsure && outcome.Granted == 0
			return outcome, nil
		}
		for _, permit := range e.waiters.takeUnwanted(t.waiter) {
			e.leaveBy(context.WithoutCancel(ctx), t.request, kernel.VerbLeave, permit)
		}
		last, askedBefore = refusalOf(outcome, pause), true
		due := until
		if isFirst {
			due = askedAt + pause
		}
		inTime, err := e.awaitTurn(ctx, t.waiter, due, until)
		if err != nil {
			return Outcome{}, &wire.Failure{Class: wire.ClassCaller, Charged: t.isUnsure, Cause: err}
		}
		if last.HeldUS = e.nowUS() - began; !inTime {
			last.HeldUS = t.request.MaxWait
			return last, nil
		}
		// The policy may have another version by now.
		if next, err := e.policyFor(ctx, t.request); err == nil {
			p = next
		}
	}
}

// askWith asks once, by a verb. What was granted by a question whose answer was lost is held already, so it is renewed.
func (e *Engine) askWith(ctx context.Context, p *policy.Policy, t *ticket, v kernel.Verb) (Outcome, error) {
	request, wasUnsure := t.request, t.isUnsure
	request.Verb, t.isOver = v, false
	outcome, err := e.decideNow(context.WithoutCancel(ctx), p, request)
	byStore := err == nil && outcome.Mode == ModeStore
	t.isUnsure = t.isUnsure || !byStore
	t.isOver = byStore && !(outcome.Allowed && outcome.Granted == 0)
	if wasUnsure && v == kernel.VerbWait && byStore && !outcome.Allowed && outcome.Retry == kernel.Never {
		return e.askWith(ctx, p, t, kernel.VerbRenew)
	}
	return outcome, err
}

// pauseOf returns the time after which a request with this answer may pass if it is the first; false if it does not wait. One
// that has waited before goes on while Redis is away or busy.
func pauseOf(outcome Outcome, waited bool) (us int64, waits bool) {
	switch {
	case outcome.Allowed:
		return min(max(outcome.Wait, lookMinUS), lookEveryUS), outcome.Granted == 0
	case outcome.Retry == kernel.Never:
		return 0, false
	case outcome.Mode == ModeLocal:
		return lookWithoutStoreUS, true
	default:
		return lookEveryUS, waited && (outcome.Mode == ModeShed || outcome.Mode == ModeDeny)
	}
}

// refusalOf returns what a request gets that waits no longer.
func refusalOf(outcome Outcome, pause int64) Outcome {
	if outcome.Allowed {
		outcome.Allowed, outcome.Retry, outcome.Wait = false, max(outcome.Wait, pause), 0
	}
	return outcome
}

// awaitTurn waits until a request is to ask again: it is called, or it is the first of its key and due. It returns false if until comes
// before, and an error if the context ends.
func (e *Engine) awaitTurn(ctx context.Context, one *waiter, due, until int64) (bool, error) {
	for {
		pause, nudge := context.WithCancel(ctx)
		called, wakeAt := e.waiters.beginPause(one, due, until, nudge)
		isDue := false
		if !called {
			_ = e.Clock.Sleep(pause, kernel.Span(wakeAt-e.nowUS())) // its error is that of the context, or a nudge
			called, isDue = e.waiters.endPause(one)
			isDue = isDue && pause.Err() == nil
		}
		nudge()
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case called:
			return true, nil
		case e.nowUS() >= until:
			return false, nil
		case isDue:
			return true, nil
		}
	}
}

// giveBack gives a ticket back, and releases a permit that may be held under a random id.
func (e *Engine) giveBack(ctx context.Context, t *ticket) {
	if t.isOver {
		return
	}
	if t.isUnsure && t.request.IsUnnamed {
		e.leaveBy(ctx, t.request, kernel.VerbRelease, t.permit)
	}
	if !e.waiters.waits(t.place, t.permit) { // a caller that chose the id may wait for it again
		e.leaveBy(ctx, t.request, kernel.VerbLeave, t.permit)
	}
}

// leaveBy gives back the ticket, or the permit, of an id by a verb, if Redis answers. If it does not, the ticket lapses with its process, or is
// given back when it is called.
func (e *Engine) leaveBy(ctx context.Context, request Request, v kernel.Verb, permit kernel.PermitID) {
	p, err := e.policyFor(ctx, request)
	if err != nil {
		return
	}
	request.Verb, request.permit = v, permit
	_, _ = e.decideNow(ctx, p, request)
}

// callWaiters calls the waiting requests that an answer names.
func (e *Engine) callWaiters(place string, v kernel.Verb, verdict kernel.Verdict, called []kernel.Called) {
	if len(called) == 0 {
		return
	}
	if v == kernel.VerbWait {
		e.waiters.noteUnwanted(place, called)
	}
	// An answer that frees nothing says what others said: requests would wake each other for ever.
	if v == kernel.VerbRelease || v == kernel.VerbLeave || v == kernel.VerbWait && verdict.Granted > 0 {
		e.waiters.send(e.waiters.call(called))
	}
}
