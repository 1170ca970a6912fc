package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A question that passes its deadline says little by itself. If Redis answered others meanwhile, or if more questions wait than
// there are connections, it is busy, and the question is refused; deciding it by the share as well would admit more than the
// limit. If it answered nobody, it is silent, and the share decides. The numbers are those of spec/failure.md.
const (
	// silentAfter is the silence, in deadlines, after which a queue, or a process that was late itself, is no excuse any more.
	silentAfter = 10
	// lateMax is how many questions on end may be late beside a Redis that answers.
	lateMax = 3
	// overdueMax is the part of a deadline that the process itself may be late.
	overdueMax = 4
	// stoodLeast and stoodMost bound the time after which a process stood still: ten deadlines within these.
	stoodLeast = 20 * time.Millisecond
	stoodMost  = 200 * time.Millisecond
	// nodesMax is the maximum number of nodes of a cluster that are judged apart: more than a cluster has. Nodes that are gone make room.
	nodesMax = 1024
)

// started is when ticks begin.
var started = time.Now()

// ticks returns an instant that the clock of the machine does not change.
func ticks() time.Duration { return time.Since(started) }

// pulse is what one node of Redis did lately.
type pulse struct {
	underWay atomic.Int64
	beat     atomic.Int64 // when it last answered, or was asked while nothing was under way
	waits    atomic.Bool  // for the answer to a question that passed its deadline: that one stays under way
	late     atomic.Int64 // questions on end that passed their deadlines, one after the other
	lateSeen atomic.Int64 // when the last of them was seen
}

// begin counts a question.
func (p *pulse) begin(now time.Duration) {
	if p.underWay.Add(1) == 1 && !p.waits.Load() {
		p.beat.Store(int64(now))
	}
}

// end says that a question is over.
func (p *pulse) end() { p.underWay.Add(-1) }

// answered says that Redis answered a question.
func (p *pulse) answered(now time.Duration) {
	p.beat.Store(int64(now))
	p.late.Store(0)
	p.waits.Store(false)
}

// lateness is a question that passed its deadline: when it began, when that was seen, and the time that it had.
type lateness struct{ began, seen, deadline time.Duration }

// busy reports whether Redis is only busy, as a question passed its deadline. sent says whether the question was sent, and room how many have a
// connection at a time.
func (p *pulse) busy(l lateness, sent bool, room int64) bool {
	p.waits.Store(true)
	silence, overdue := l.seen-time.Duration(p.beat.Load()), l.seen-l.began-l.deadline
	if overdue >= min(max(silentAfter*l.deadline, stoodLeast), stoodMost) {
		return true // this process stood still
	}
	// One that was not sent, and for which there is room, has no connection: a process that is late does not excuse that.
	queued, tardy := !sent && p.underWay.Load() > room, sent && overdue > l.deadline/overdueMax
	if queued || tardy {
		return silence < silentAfter*l.deadline
	}
	// Those that were late together count as one.
	if seen := p.lateSeen.Load(); int64(l.began) >= seen && p.lateSeen.CompareAndSwap(seen, int64(l.seen)) {
		p.late.Add(1)
	}
	return silence < l.deadline && p.late.Load() < lateMax
}

// pulses are those of the nodes.
type pulses struct {
	one  pulse // of the only node
	mu   sync.Mutex
	many map[*redis.Client]*pulse
}

// pulseOf returns the pulse of the node that has a key, and how many questions the node has under way at most.
func (s *Redis) pulseOf(ctx context.Context, key string) (*pulse, int64) {
	node, room := s.conn.Node(ctx, key)
	if node == nil {
		return &s.pulses.one, room
	}
	s.pulses.mu.Lock()
	defer s.pulses.mu.Unlock()
	p := s.pulses.many[node]
	if p == nil {
		if s.pulses.many == nil || len(s.pulses.many) >= nodesMax {
			s.pulses.many = map[*redis.Client]*pulse{}
		}
		p = &pulse{}
		s.pulses.many[node] = p
	}
	return p, room
}
