package sluicegate

import (
	"context"
	"errors"
	"sync"
)

// memoryKeysMax bounds the keys that are kept in memory; a key beyond them cannot be decided.
const memoryKeysMax = 1_000_000

var errMemoryFull = errors.New("too many keys in memory")

// memoryStore decides in the memory of this process, as a share of one.
type memoryStore struct {
	mu   sync.Mutex
	keys map[string]*life
}

func (s *memoryStore) ask(ctx context.Context, q question) (answer, *failure) {
	if ctx.Err() != nil {
		return answer{}, &failure{classCaller, false, ctx.Err()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.keys[q.key]
	if l == nil {
		if len(s.keys) >= memoryKeysMax {
			return answer{}, &failure{classThisKey, false, errMemoryFull}
		}
		empty := emptyLife(q.plan.set)
		l = &empty
	}
	v := l.decide(q.plan.set, q.request)
	if l.isEmpty() {
		delete(s.keys, q.key)
	} else if q.verb != verbPeek {
		s.keys[q.key] = l
	}
	return answer{verdict: v, set: q.plan.set}, nil
}
