package store

import (
	"hash/maphash"
	"sync"
)

// askedParts is the number of locks: many callers ask at a time.
const askedParts = 64

// asked counts the permits that requests under way ask Redis for, by key. Redis may have granted them, or may do so still.
type asked struct {
	seed  maphash.Seed
	parts [askedParts]struct {
		mu      sync.Mutex
		permits map[string]int64
	}
}

func newAsked() *asked {
	a := &asked{seed: maphash.MakeSeed()}
	for i := range a.parts {
		a.parts[i].permits = map[string]int64{}
	}
	return a
}

// add counts so many more permits of a key; fewer if it is negative. A key of which none are asked for takes no room.
func (a *asked) add(key string, permits int64) {
	part := &a.parts[maphash.String(a.seed, key)%askedParts]
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.permits[key] += permits; part.permits[key] == 0 {
		delete(part.permits, key)
	}
}

// of returns how many permits of a key are asked for.
func (a *asked) of(key string) int64 {
	part := &a.parts[maphash.String(a.seed, key)%askedParts]
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.permits[key]
}
