package store

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// A process that has just started is slow: no connection is made, the script is perhaps not loaded, and everything is used for
// the first time, often by many requests at once. Questions that pass their deadline beside a healthy Redis would be decided by
// the share, in addition to what Redis admits.
const (
	// StartDeadline is the least deadline of requests during the first StartLasts of a process: some times what the first use of
	// a connection took on a busy machine.
	StartDeadline = 500 * time.Millisecond
	// StartLasts is how long that holds: the first requests come within it. It ends with the first request that has no answer, since
	// Redis is not there then.
	StartLasts = 5 * time.Second
	// warmUpWithin bounds the time that a start takes to warm up.
	warmUpWithin = 500 * time.Millisecond
	// warmUpPeeks is how many peeks there are: each caller uses its connection some times.
	warmUpPeeks = 200
	// warmUpCallers is how many peek at a time, and so how many connections are made ahead; fewer if the pool has fewer.
	warmUpCallers = 32
	// warmUpLimit names the limit whose keys are peeked at. Nothing is ever taken of it.
	warmUpLimit = "warm-up"
)

// DeadlineNow returns the deadline of a request that begins now.
func (s *Redis) DeadlineNow() time.Duration {
	until := s.start.Load()
	if until == 0 {
		return s.Deadline
	}
	if s.now().UnixMicro() >= until {
		s.start.CompareAndSwap(until, 0)
		return s.Deadline
	}
	return max(s.Deadline, StartDeadline)
}

// Begin has requests take longer from now on, for StartLasts.
func (s *Redis) Begin() { s.start.Store(s.now().Add(StartLasts).UnixMicro()) }

// WarmUp makes connections, loads the script, and uses all that a request uses, by peeks that change nothing. It ends as soon as
// one is not answered, after half a second at most.
func (s *Redis) WarmUp(ctx context.Context) {
	set, err := kernel.Compile(warmUpLimit, []kernel.Spec{{Code: kernel.CodeFixedWindow, Limit: 1, WindowUS: 1_000_000}}, wire.CallerRule)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, warmUpWithin)
	defer cancel()
	rules, peeks := wire.NewLimitRules(warmUpLimit, set), atomic.Int64{}
	peek := func() bool {
		n := peeks.Add(1)
		// Keys of all nodes of a cluster.
		req := Request{Rules: rules, Key: wire.StateKey(rules.Policy, strconv.FormatInt(n, 10))}
		now := s.now().UnixMicro()
		req.Request = kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: now}
		_, f := s.Decide(ctx, req)
		return f == nil && n < warmUpPeeks
	}
	if !peek() { // which loads the script, once
		return
	}
	_, room := s.activityOf(ctx, wire.StateKey(rules.Policy, ""))
	var all sync.WaitGroup
	for range min(warmUpCallers, room) {
		all.Add(1)
		go func() {
			defer all.Done()
			for peek() {
			}
		}()
	}
	all.Wait()
}
