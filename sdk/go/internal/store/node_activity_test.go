package store

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

func TestARedisThatAnswersOthersIsBusyAndNotSilent(t *testing.T) {
	const deadline, ms = 50 * time.Millisecond, time.Millisecond
	for name, c := range map[string]struct {
		silence, overdue time.Duration
		waiting          int64 // beside the request
		sent             bool
		late             int64 // requests before it
		busy             bool
	}{
		"a reply came within the deadline":                   {49 * ms, 0, 0, true, 0, true},
		"none came":                                          {50 * ms, 0, 0, true, 0, false},
		"the third on end is late":                           {1 * ms, 0, 0, true, 2, false},
		"the second on end is late":                          {1 * ms, 0, 0, true, 1, true},
		"more wait than have a connection":                   {499 * ms, 0, 2, false, 9, true},
		"as many wait as have a connection":                  {499 * ms, 0, 1, false, 0, false},
		"more wait, and Redis is silent for ten deadlines":   {500 * ms, 0, 2, false, 0, false},
		"more wait, but this one was sent":                   {60 * ms, 0, 2, true, 0, false},
		"the process was late itself":                        {499 * ms, 13 * ms, 0, true, 9, true},
		"the process was late, and there was no connection":  {499 * ms, 13 * ms, 0, false, 0, false},
		"the process was late, and Redis silent":             {500 * ms, 13 * ms, 0, true, 0, false},
		"the process stood still":                            {5000 * ms, 200 * ms, 0, true, 9, true},
		"the process was a quarter of a deadline late, sent": {60 * ms, 12 * ms, 0, true, 0, false},
	} {
		p := &nodeActivity{}
		for range c.waiting + 1 {
			p.begin(0)
		}
		p.answered(0)
		p.late.Store(c.late)
		p.lateSeen.Store(-1 << 62)
		l := lateRequest{began: c.silence - c.overdue - deadline, seen: c.silence, deadline: deadline}
		if busy := p.busy(l, c.sent, 2); busy != c.busy {
			t.Errorf("%s: %v", name, busy)
		}
	}
}

func TestRequestsThatAreLateTogetherCountAsOne(t *testing.T) {
	const deadline = 50 * time.Millisecond
	p := &nodeActivity{}
	busy := func(began time.Duration) bool {
		p.lastReply.Store(int64(began + deadline - time.Millisecond)) // a reply that was late itself
		return p.busy(lateRequest{began, began + deadline, deadline}, true, 20)
	}
	for i := range 20 {
		if !busy(time.Second + time.Duration(i)) {
			t.Fatalf("question %d", i)
		}
	}
	for round, want := range []bool{true, false, false} {
		if got := busy(time.Second + time.Duration(round+1)*2*deadline); got != want {
			t.Errorf("round %d: %v", round, got)
		}
	}
}

func TestSilenceBeginsWithTheFirstRequestAfterNothingWasUnderWay(t *testing.T) {
	p := &nodeActivity{}
	p.begin(0)
	p.answered(time.Second)
	p.end()
	p.begin(time.Hour)
	late := lateRequest{time.Hour, time.Hour + 50*time.Millisecond, 50 * time.Millisecond}
	if p.busy(late, true, 9) {
		t.Error("a reply of an hour ago makes it busy")
	}
	p.begin(time.Hour) // it waits for a connection
	if !p.busy(late, false, 1) {
		t.Error("the silence began with the question, not an hour ago")
	}
}

// A node that is gone must not count as busy because others answer.
func TestEachNodeHasAPulseOfItsOwn(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": testkit.FreeAddr(), "b": testkit.FreeAddr()}, PoolSize: 7})
	defer ring.Close()
	s, ctx, seen := &Redis{conn: wire.Conn{Client: ring}}, context.Background(), map[*nodeActivity]bool{}
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"} {
		key := wire.StateKey("a", name)
		p, room := s.activityOf(ctx, key)
		if again, _ := s.activityOf(ctx, key); p != again || room != 7 {
			t.Errorf("%s: another pulse, or room for %d", name, room)
		}
		seen[p] = true
	}
	if len(seen) != 2 {
		t.Errorf("%d pulses of 2 nodes", len(seen))
	}
}

// The probes of a process that is late itself must not make a Redis busy that is gone.
func TestARequestThatHadNoAnswerKeepsTheSilence(t *testing.T) {
	const deadline = 50 * time.Millisecond
	p := &nodeActivity{}
	for probe, want := range []bool{true, true, false, false} {
		began := time.Duration(probe) * 200 * time.Millisecond
		p.begin(began)
		if got := p.busy(lateRequest{began, began + 2*deadline, deadline}, true, 9); got != want {
			t.Errorf("probe %d: %v", probe, got)
		}
		p.end()
	}
	p.answered(time.Second)
	p.begin(2 * time.Second)
	if !p.busy(lateRequest{2 * time.Second, 2*time.Second + 2*deadline, deadline}, true, 9) {
		t.Error("it answered meanwhile")
	}
}

func TestAProcessThatStartsHasMoreTime(t *testing.T) {
	clock := testkit.NewManual()
	s := &Redis{Deadline: 50 * time.Millisecond, now: clock.Now}
	if got := s.DeadlineNow(); got != 50*time.Millisecond {
		t.Errorf("%v", got)
	}
	s.Begin()
	for _, c := range []struct{ after, own, want time.Duration }{
		{0, 50 * time.Millisecond, StartDeadline}, {0, time.Second, time.Second}, {StartLasts - time.Microsecond, time.Millisecond, StartDeadline},
		{time.Microsecond, 50 * time.Millisecond, 50 * time.Millisecond}, {0, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		clock.Advance(c.after)
		s.Deadline = c.own
		if got := s.DeadlineNow(); got != c.want {
			t.Errorf("after %v more: %v, expected %v", c.after, got, c.want)
		}
	}
}

// Callers must not wait ten times as long for a Redis that went away right after the start.
func TestAStartEndsWithARequestThatHasNoAnswer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testkit.FreeAddr(), ContextTimeoutEnabled: true, DialerRetries: 1})
	defer client.Close()
	s := NewRedis(wire.Conn{Client: client}, 50*time.Millisecond, time.Now, func() wire.Clock { return wire.ClockServer })
	s.Begin()
	q := Request{Rules: compiled(t, 1, testkit.Window(9, time.Hour)), Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1}}
	if _, f := s.Decide(context.Background(), q); f == nil || f.Class != wire.ClassNoAnswer {
		t.Fatalf("%+v", f)
	}
	if got := s.DeadlineNow(); got != 50*time.Millisecond {
		t.Errorf("%v", got)
	}
}

func TestAWarmUpMakesConnectionsAndChangesNothing(t *testing.T) {
	addr, ctx := testkit.RedisAddr(t), context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 8})
	defer client.Close()
	s := NewRedis(wire.Conn{Client: client}, testkit.Patient, time.Now, func() wire.Clock { return wire.ClockServer })
	s.WarmUp(ctx)
	if made := client.PoolStats().TotalConns; made < 2 || made > 8 {
		t.Errorf("%d connections, expected 2 to 8", made)
	}
	if keys, err := testkit.Dial(t, addr).Keys(ctx, "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("%v, %v", keys, err)
	}
	p := compiled(t, 1, testkit.Window(9, time.Hour))
	q := Request{Rules: p, Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1}}
	if a, f := s.Decide(ctx, q); f != nil || !a.Allowed {
		t.Errorf("%+v, %v", a, f)
	}
}

// An address where nothing listens: a start must not wait for it.
func TestAWarmUpEndsWithoutRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testkit.FreeAddr(), ContextTimeoutEnabled: true})
	defer client.Close()
	s := NewRedis(wire.Conn{Client: client}, testkit.Patient, time.Now, func() wire.Clock { return wire.ClockServer })
	began := time.Now()
	if s.WarmUp(context.Background()); time.Since(began) > 5*time.Second {
		t.Errorf("%v", time.Since(began))
	}
}
