package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A request that passes its deadline means little by itself. If Redis answered others meanwhile, or if more requests wait than
// there are connections, it is busy, and the request is refused; deciding it by the share as well would admit more than the
// limit. If it answered nobody, it is silent, and the share decides. The numbers are those of spec/failure.md.
const (
	// silentAfter is the silence, in deadlines, after which a queue, or a process that was late itself, is no excuse any more.
	silentAfter = 10
	// lateMax is how many requests on end may be late beside a Redis that answers.
	lateMax = 3
	// overdueMax is the part of a deadline that the process itself may be late.
	overdueMax = 4
	// stalledMin and stoodMost bound the time after which a process stood still: ten deadlines within these.
	stalledMin = 20 * time.Millisecond
	stalledMax = 200 * time.Millisecond
	// nodesMax is the maximum number of nodes of a cluster that are judged apart: more than a cluster has. Nodes that are gone make room.
	nodesMax = 1024
)

// processStart is when monotonic begins.
var processStart = time.Now()

// monotonic returns an instant that the clock of the machine does not change.
func monotonic() time.Duration { return time.Since(processStart) }

// nodeActivity is what one node of Redis did lately.
type nodeActivity struct {
	underWay   atomic.Int64
	lastReply  atomic.Int64 // when it last answered, or got a request while nothing was under way
	awaitsLate atomic.Bool  // for the answer to a request that passed its deadline: that one stays under way
	late       atomic.Int64 // requests on end that passed their deadlines, one after the other
	lateSeen   atomic.Int64 // when the last of them was seen
}

// begin counts a request.
func (p *nodeActivity) begin(now time.Duration) {
	if p.underWay.Add(1) == 1 && !p.awaitsLate.Load() {
		p.lastReply.Store(int64(now))
	}
}

// end counts the end of a request.
func (p *nodeActivity) end() { p.underWay.Add(-1) }

// answered records a reply of Redis.
func (p *nodeActivity) answered(now time.Duration) {
	p.lastReply.Store(int64(now))
	p.late.Store(0)
	p.awaitsLate.Store(false)
}

// lateRequest is a request that passed its deadline: when it began, when that was seen, and the time that it had.
type lateRequest struct{ began, seen, deadline time.Duration }

// busy reports whether Redis is only busy, as a request passed its deadline. sent reports whether the request was sent, and room how many have a
// connection at a time.
func (p *nodeActivity) busy(l lateRequest, sent bool, room int64) bool {
	p.awaitsLate.Store(true)
	silence, overdue := l.seen-time.Duration(p.lastReply.Load()), l.seen-l.began-l.deadline
	if overdue >= min(max(silentAfter*l.deadline, stalledMin), stalledMax) {
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

// nodeActivities are those of the nodes.
type nodeActivities struct {
	only     nodeActivity // of the only node
	mu       sync.Mutex
	byClient map[*redis.Client]*nodeActivity
}

// activityOf returns the activity of the node that has a key, and how many requests the node has under way at most.
func (s *Redis) activityOf(ctx context.Context, key string) (*nodeActivity, int64) {
	node, room := s.conn.Node(ctx, key)
	if node == nil {
		return &s.nodes.only, room
	}
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	activity := s.nodes.byClient[node]
	if activity == nil {
		if s.nodes.byClient == nil || len(s.nodes.byClient) >= nodesMax {
			s.nodes.byClient = map[*redis.Client]*nodeActivity{}
		}
		activity = &nodeActivity{}
		s.nodes.byClient[node] = activity
	}
	return activity, room
}
