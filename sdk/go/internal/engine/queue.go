package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// heldMax is how many requests of a process are held back at a time: each has a goroutine that waits.
	heldMax = 10_000
	// vacantMax is how many turns are kept that were booked for callers that went away.
	vacantMax = 10_000
	// triesMax is how often a held request is asked for.
	triesMax = 64
)

// queue holds requests back, and keeps the turns of callers that went away.
type queue struct {
	mu     sync.Mutex
	held   int
	vacant int
	turns  map[turn][]int64 // when they are due, the first first
}

// turn identifies requests that may take each other's turns.
type turn struct {
	key  string
	cost int64
}

func (q *queue) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held >= heldMax {
		return false
	}
	q.held++
	return true
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
}

// give keeps a turn for the next request that may take it.
func (q *queue) give(t turn, due, now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns == nil {
		q.turns = map[turn][]int64{}
	}
	if q.vacant >= vacantMax {
		for other := range q.turns {
			q.lapse(other, now)
		}
	}
	if q.vacant >= vacantMax {
		return
	}
	place, _ := slices.BinarySearch(q.turns[t], due)
	q.turns[t] = slices.Insert(q.turns[t], place, due)
	q.vacant++
}

// lapse drops the turns that are due.
func (q *queue) lapse(t turn, now int64) {
	list := q.turns[t]
	for len(list) > 0 && list[0] <= now {
		list, q.vacant = list[1:], q.vacant-1
	}
	if len(list) == 0 {
		delete(q.turns, t)
		return
	}
	q.turns[t] = list
}

// take returns the first vacant turn that is due by then.
func (q *queue) take(t turn, now, by int64) (due int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lapse(t, now)
	list := q.turns[t]
	if len(list) == 0 || list[0] > by {
		return 0, false
	}
	due = list[0]
	q.turns[t] = list[1:]
	q.vacant--
	q.lapse(t, now)
	return due, true
}

// queued holds a check back until it passes, or until it could not pass in time.
func (e *Engine) queued(ctx context.Context, p *policy.Policy, a Request) (Outcome, error) {
	a.Verb = kernel.VerbReserve
	if !e.queue.enter() {
		a.MaxWait = 0
		return e.once(ctx, p, a)
	}
	defer e.queue.leave()
	heldUS := int64(0)
	place := turn{wire.StateKey(p.Name, a.Key), a.Cost}
	for try := 1; ; try++ {
		left := p.Overflow.QueueUS - heldUS
		now := e.nowUS()
		if due, ok := e.queue.take(place, now, now+left); ok {
			if err := e.hold(ctx, place, due, due-now); err != nil {
				return Outcome{}, err
			}
			return e.inTurn(p, a, heldUS+due-now), nil
		}
		a.MaxWait = left
		got, err := e.once(ctx, p, a)
		if err != nil {
			return Outcome{}, err
		}
		got.HeldUS = heldUS
		if got.Allowed && got.Wait > 0 {
			due := noTurn
			if got.Mode == ModeStore {
				due = now + got.Wait
			}
			got.HeldUS += got.Wait
			return got, e.hold(ctx, place, due, got.Wait)
		}
		if got.Allowed || got.Retry == kernel.Never || got.Retry > left || try == triesMax {
			return got, nil
		}
		if err := e.hold(ctx, place, noTurn, got.Retry); err != nil {
			return Outcome{}, err
		}
		heldUS += got.Retry
		got.HeldUS = heldUS
		next, err := e.policyFor(ctx, a)
		if err != nil {
			return got, nil
		}
		if p = next; p.Overflow.Kind != "queue" {
			a.Verb = kernel.VerbCheck
			got, err := e.once(ctx, p, a)
			got.HeldUS = heldUS
			return got, err
		}
	}
}

// noTurn says that a caller that goes away has booked nothing.
const noTurn int64 = -1

// hold waits. If the caller goes away, its turn is vacant.
func (e *Engine) hold(ctx context.Context, t turn, due, us int64) error {
	err := e.Clock.Sleep(ctx, kernel.Span(us))
	if err == nil {
		return nil
	}
	if due != noTurn {
		e.queue.give(t, due, e.nowUS())
	}
	return &wire.Failure{Class: wire.ClassCaller, Charged: due != noTurn, Cause: err}
}

// inTurn is the answer to a request that took the turn of another: that turn was charged when it was booked.
func (e *Engine) inTurn(p *policy.Policy, a Request, heldUS int64) Outcome {
	pl := p.PlanFor(a.Key, e.nowUS())
	v := kernel.Verdict{Allowed: true, Granted: a.Cost, Wait: heldUS}
	return Outcome{Answer: store.Answer{Verdict: v, Set: pl.Set}, Policy: p, Plan: pl, Verb: a.Verb, Mode: ModeStore, HeldUS: heldUS}
}
