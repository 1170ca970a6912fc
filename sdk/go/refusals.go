package sluicegate

import "sync"

const (
	// refusalsMax bounds the refusals that are remembered, of some 200 bytes each.
	refusalsMax = 100_000
	// refusalAskUS is after how long a remembered refusal is asked again, for somebody may have given permits back.
	refusalAskUS = 1_000_000
	// refusalAskingUS is how long one request asks while others get the old refusal.
	refusalAskingUS = 50_000
)

// remembered keeps what Redis refused: it stays refused until its retry.
type remembered struct {
	mu      sync.Mutex
	entries map[string]*refusal // by the key of the state
}

type refusal struct {
	plan   *plan
	cost   int64
	answer answer
	at     int64
	asked  int64 // when somebody last asked again
	asking bool
}

// find gives the refusal of a check, as of now.
func (m *remembered) find(at place, p *plan, cost, now int64) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.entries[string(at[:])]
	if r == nil || r.plan != p || r.cost != cost || now < r.at {
		return answer{}, false
	}
	elapsed := now - r.at
	if r.answer.retry != never && elapsed >= r.answer.retry {
		return answer{}, false
	}
	if elapsed >= refusalAskUS && (!r.asking || now < r.asked || now-r.asked >= refusalAskingUS) {
		r.asking, r.asked = true, now
		return answer{}, false
	}
	a := r.answer
	if a.retry != never {
		a.retry -= elapsed
	}
	a.resetAfter = max(a.resetAfter-elapsed, 0)
	return a, true
}

// keep remembers what Redis said to a check that began at now.
func (m *remembered) keep(key string, p *plan, cost, now int64, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.allowed {
		if r := m.entries[key]; r != nil && r.plan == p && r.cost == cost {
			delete(m.entries, key)
		}
		return
	}
	if m.entries == nil {
		m.entries = map[string]*refusal{}
	}
	if _, there := m.entries[key]; !there {
		for other := range m.entries {
			if len(m.entries) < refusalsMax {
				break
			}
			delete(m.entries, other)
		}
	}
	m.entries[key] = &refusal{plan: p, cost: cost, answer: a, at: now}
}

func (m *remembered) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}
