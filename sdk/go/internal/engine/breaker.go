package engine

import (
	"math/rand/v2"
	"sync"
)

const (
	breakerSlots   = 10
	breakerSlotUS  = 100_000
	breakerCalls   = 5 // decisions from which on it may open
	breakerShortUS = 100_000
	breakerLongUS  = 300_000
)

// breaker stops requests to a Redis that does not answer: one for the process.
type breaker struct {
	mu    sync.Mutex
	slots [breakerSlots]breakerSlot
	open  bool
	from  int64 // while open, nothing is sent to Redis from here
	till  int64 // to here
}

type breakerSlot struct {
	number, calls, failures int64
}

// allows reports whether a request may go to Redis. While the breaker is open, one call is the probe.
func (b *breaker) allows(now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return true
	}
	if now >= b.from && now < b.till {
		return false
	}
	b.pause(now)
	return true
}

// isOpen reports whether requests do not go to Redis.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

func (b *breaker) pause(now int64) {
	b.from, b.till = now, now+breakerShortUS+rand.Int64N(breakerLongUS-breakerShortUS+1)
}

// count counts a decision that began at now, and reports whether the breaker opened or closed with it.
func (b *breaker) count(now int64, failed bool) (opened, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed && b.open {
		b.open, b.slots, closed = false, [breakerSlots]breakerSlot{}, true
	}
	number := now / breakerSlotUS
	slot := &b.slots[number%breakerSlots]
	if slot.number != number {
		*slot = breakerSlot{number: number}
	}
	slot.calls++
	if !failed {
		return false, closed
	}
	slot.failures++
	if b.open {
		return false, false
	}
	calls, failures := int64(0), int64(0)
	for _, s := range b.slots {
		if apart := number - s.number; apart > -breakerSlots && apart < breakerSlots {
			calls, failures = calls+s.calls, failures+s.failures
		}
	}
	if calls >= breakerCalls && 2*failures >= calls {
		b.open, opened = true, true
		b.pause(now)
	}
	return opened, false
}
