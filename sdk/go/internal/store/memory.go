package store

import (
	"context"
	"errors"
	"sync"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// memoryKeysMax bounds the keys that are kept in memory; a key beyond them cannot be decided.
const memoryKeysMax = 1_000_000

var errMemoryFull = errors.New("too many keys in memory")

// memory decides in the memory of this process, as a share of one.
type memory struct {
	mu   sync.Mutex
	keys map[string]*kernel.KeyState
}

// NewMemory returns a store without a key.
func NewMemory() Store { return &memory{keys: map[string]*kernel.KeyState{}} }

func (s *memory) Decide(ctx context.Context, req Request) (Answer, *wire.Failure) {
	if ctx.Err() != nil {
		return Answer{}, &wire.Failure{Class: wire.ClassCaller, Cause: ctx.Err()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.keys[req.Key]
	if state == nil {
		if len(s.keys) >= memoryKeysMax {
			return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: errMemoryFull}
		}
		empty := kernel.NewKeyState(req.Rules.Set)
		state = &empty
	}
	verdict := state.Decide(req.Rules.Set, req.Request)
	if state.IsEmpty() {
		delete(s.keys, req.Key)
	} else if req.Verb != kernel.VerbPeek {
		s.keys[req.Key] = state
	}
	return Answer{Verdict: verdict, Set: req.Rules.Set}, nil
}
