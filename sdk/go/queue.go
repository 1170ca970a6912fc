package sluicegate

import (
	"context"
	"sync"
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

// turn tells requests that may take each other's turns.
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
	list, place := q.turns[t], 0
	for place < len(list) && list[place] <= due {
		place++
	}
	list = append(list, 0)
	copy(list[place+1:], list[place:])
	list[place] = due
	q.turns[t] = list
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

// take gives the first vacant turn that is due by then.
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
func (e *engine) queued(ctx context.Context, p *policy, a ask) (Decision, error) {
	a.verb = verbReserve
	if !e.queue.enter() {
		a.maxWait = 0
		d, _, err := e.once(ctx, p, a)
		return d, err
	}
	defer e.queue.leave()
	heldUS := int64(0)
	place := turn{stateKey(p.name, a.key), a.cost}
	var last Decision
	for try := 1; ; try++ {
		left := p.overflow.queueUS - heldUS
		now := e.nowUS()
		if due, ok := e.queue.take(place, now, now+left); ok {
			if err := e.hold(ctx, place, due, due-now); err != nil {
				return Decision{}, err
			}
			return e.inTurn(ctx, p, a, heldUS+due-now)
		}
		a.maxWait = left
		d, got, err := e.once(ctx, p, a)
		if err != nil {
			return d, err
		}
		d.Held = span(heldUS)
		if got.allowed && got.wait > 0 {
			due := noTurn
			if d.Mode == ModeStore {
				due = now + got.wait
			}
			err := e.hold(ctx, place, due, got.wait)
			d.Held = span(heldUS + got.wait)
			return d, err
		}
		if d.Allowed || !d.CanRetry || got.retry > left || try == triesMax {
			return d, nil
		}
		if err := e.hold(ctx, place, noTurn, got.retry); err != nil {
			return Decision{}, err
		}
		last, heldUS = d, heldUS+got.retry
		last.Held = span(heldUS)
		next, err := e.policyFor(ctx, a)
		if err != nil {
			return last, nil
		}
		if p = next; p.overflow.kind != "queue" {
			a.verb = verbCheck
			d, _, err := e.once(ctx, p, a)
			d.Held = span(heldUS)
			return d, err
		}
	}
}

// noTurn says that a caller that goes away has booked nothing.
const noTurn int64 = -1

// hold waits. If the caller goes away, its turn is vacant.
func (e *engine) hold(ctx context.Context, t turn, due, us int64) error {
	err := e.clock.Sleep(ctx, span(us))
	if err == nil {
		return nil
	}
	if due != noTurn {
		e.queue.give(t, due, e.nowUS())
		return interrupted(err)
	}
	return newError(ErrNotCharged, err, "store: %s; nothing was charged", outside(err.Error()))
}

// inTurn is the answer to a request that took the turn of another: that turn was charged when it was booked.
func (e *engine) inTurn(ctx context.Context, p *policy, a ask, heldUS int64) (Decision, error) {
	pl := p.planFor(a.key, e.nowUS())
	v := verdict{allowed: true, granted: a.cost, wait: heldUS}
	d := decisionOf(p, pl, a.verb, answer{verdict: v, set: pl.set}, ModeStore)
	d.Held = span(heldUS)
	return d, nil
}
