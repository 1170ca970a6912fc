package store

import (
	"sync"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// refusalsMax bounds the refusals that are remembered, of some 200 bytes each.
	refusalsMax = 100_000
	// refusalRecheckUS is after how long a remembered refusal is checked again, for somebody may have given permits back.
	refusalRecheckUS = 1_000_000
	// refusalProbeUS is how long one request checks while others get the old refusal.
	refusalProbeUS = 50_000
)

// Refusals keeps what Redis refused: it stays refused until its retry.
type Refusals struct {
	mu      sync.Mutex
	entries map[string]*refusal // by the key of the state
}

type refusal struct {
	rules    *wire.CompiledRules
	cost     int64
	answer   Answer
	at       int64
	probedAt int64 // when a request last checked again
}

// Find returns the refusal of a check, as of now.
func (m *Refusals) Find(place wire.Place, rules *wire.CompiledRules, cost, now int64) (Answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.entries[string(place[:])]
	if r == nil || r.rules != rules || r.cost != cost || now < r.at {
		return Answer{}, false
	}
	elapsed := now - r.at
	if r.answer.Retry != kernel.Never && elapsed >= r.answer.Retry {
		return Answer{}, false
	}
	if elapsed >= refusalRecheckUS && (now < r.probedAt || now-r.probedAt >= refusalProbeUS) {
		r.probedAt = now
		return Answer{}, false
	}
	a := r.answer
	if a.Retry != kernel.Never {
		a.Retry -= elapsed
	}
	a.ResetAfter = max(a.ResetAfter-elapsed, 0)
	return a, true
}

// Keep remembers the answer of Redis to a check that began at now.
func (m *Refusals) Keep(key string, rules *wire.CompiledRules, cost, now int64, a Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.Allowed {
		if r := m.entries[key]; r != nil && r.rules == rules && r.cost == cost {
			delete(m.entries, key)
		}
		return
	}
	if m.entries == nil {
		m.entries = map[string]*refusal{}
	}
	if _, there := m.entries[key]; !there {
		makeRoom(m.entries, refusalsMax)
	}
	m.entries[key] = &refusal{rules: rules, cost: cost, answer: a, at: now, probedAt: now - refusalProbeUS}
}

// Drop forgets the refusal of a key.
func (m *Refusals) Drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}
