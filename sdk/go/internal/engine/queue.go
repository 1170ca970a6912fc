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
	// triesMax is how often a held request is decided.
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

// addVacant keeps a vacant turn for the next request that may take it.
func (q *queue) addVacant(t turn, due, now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns == nil {
		q.turns = map[turn][]int64{}
	}
	if q.vacant >= vacantMax {
		for other := range q.turns {
			q.dropDue(other, now)
		}
	}
	if q.vacant >= vacantMax {
		return
	}
	place, _ := slices.BinarySearch(q.turns[t], due)
	q.turns[t] = slices.Insert(q.turns[t], place, due)
	q.vacant++
}

// dropDue drops the turns that are due.
func (q *queue) dropDue(t turn, now int64) {
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

// takeVacant returns the first vacant turn that is due by then.
func (q *queue) takeVacant(t turn, now, deadline int64) (due int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropDue(t, now)
	list := q.turns[t]
	if len(list) == 0 || list[0] > deadline {
		return 0, false
	}
	due = list[0]
	q.turns[t] = list[1:]
	q.vacant--
	q.dropDue(t, now)
	return due, true
}

// decideQueued holds a check back until it passes, or until it could not pass in time.
func (e *Engine) decideQueued(ctx context.Context, p *policy.Policy, request Request) (Outcome, error) {
	request.Verb = kernel.VerbReserve
	if !e.queue.enter() {
		request.MaxWait = 0
		return e.decideNow(ctx, p, request)
	}
	defer e.queue.leave()
	heldUS := int64(0)
	place := turn{wire.StateKey(p.Name, request.Key), request.Cost}
	for try := 1; ; try++ {
		left := p.Overflow.QueueUS - heldUS
		now := e.nowUS()
		if due, ok := e.queue.takeVacant(place, now, now+left); ok {
			if err := e.holdBack(ctx, place, due, due-now); err != nil {
				return Outcome{}, err
			}
			return e.vacantTurn(p, request, heldUS+due-now), nil
		}
		request.MaxWait = left
		outcome, err := e.decideNow(ctx, p, request)
		if err != nil {
			return Outcome{}, err
		}
		outcome.HeldUS = heldUS
		if outcome.Allowed && outcome.Wait > 0 {
			due := noTurn
			if outcome.Mode == ModeStore {
				due = now + outcome.Wait
			}
			outcome.HeldUS += outcome.Wait
			return outcome, e.holdBack(ctx, place, due, outcome.Wait)
		}
		if outcome.Allowed || outcome.Retry == kernel.Never || outcome.Retry > left || try == triesMax {
			return outcome, nil
		}
		if err := e.holdBack(ctx, place, noTurn, outcome.Retry); err != nil {
			return Outcome{}, err
		}
		heldUS += outcome.Retry
		outcome.HeldUS = heldUS
		next, err := e.policyFor(ctx, request)
		if err != nil {
			return outcome, nil
		}
		if p = next; p.Overflow.Kind != "queue" {
			request.Verb = kernel.VerbCheck
			outcome, err := e.decideNow(ctx, p, request)
			outcome.HeldUS = heldUS
			return outcome, err
		}
	}
}

// noTurn is the turn of a caller that has booked nothing.
const noTurn int64 = -1

// holdBack waits. If the caller goes away, its turn is vacant.
func (e *Engine) holdBack(ctx context.Context, t turn, due, us int64) error {
	err := e.Clock.Sleep(ctx, kernel.Span(us))
	if err == nil {
		return nil
	}
	if due != noTurn {
		e.queue.addVacant(t, due, e.nowUS())
	}
	return &wire.Failure{Class: wire.ClassCaller, Charged: due != noTurn, Cause: err}
}

// vacantTurn is the answer to a request that took the turn of another: that turn was charged when it was booked.
func (e *Engine) vacantTurn(p *policy.Policy, request Request, heldUS int64) Outcome {
	rules := p.RulesFor(request.Key, e.nowUS())
	v := kernel.Verdict{Allowed: true, Granted: request.Cost, Wait: heldUS}
	return Outcome{Answer: store.Answer{Verdict: v, Set: rules.Set}, Policy: p, Rules: rules, Verb: request.Verb, Mode: ModeStore, HeldUS: heldUS}
}
