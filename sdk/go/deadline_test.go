package sluicegate

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTheDeadlineHoldsWhileOneWaitsForAConnection(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 1, PoolTimeout: time.Minute})
	defer client.Close()
	taken := client.Conn()
	if err := taken.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	store := newRedisStore(redisConn{client}, 50*time.Millisecond, time.Now, func() clock { return clockServer })
	p := planOf(t, 1, FixedWindow(9, time.Hour))
	q := question{plan: p, key: stateKey("a", "k"), request: request{verb: verbCheck, cost: 1}}
	cancellable, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, c := range map[string]context.Context{"background": ctx, "cancellable": cancellable} {
		began := time.Now()
		_, f := store.ask(c, q)
		took := time.Since(began)
		if f == nil || f.class != classNoAnswer || f.charged {
			t.Fatalf("%s: %+v", name, f)
		}
		t.Logf("%s: %v", name, took)
		if took < 50*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s: took %v, expected 50 ms", name, took)
		}
	}
	taken.Close()
	store.deadline = patient
	if _, f := store.ask(ctx, q); f != nil {
		t.Error(f)
	}
}

func TestQuestionsThatEndTogetherShareATimer(t *testing.T) {
	s, ctx := &redisStore{deadline: patient}, context.Background()
	first, _ := s.within(ctx)
	second, _ := s.within(ctx)
	if first.Done() != second.Done() {
		t.Error("two questions at a time have two timers")
	}
	s = &redisStore{deadline: time.Millisecond}
	third, _ := s.within(ctx)
	<-third.Done()
	if third.Err() != context.DeadlineExceeded {
		t.Error(third.Err())
	}
	fourth, _ := s.within(ctx)
	if fourth.Done() == third.Done() {
		t.Error("a question ends before it begins")
	}
	earlier, cancel := context.WithTimeout(ctx, time.Hour)
	cancel()
	if limited, done := s.within(earlier); limited.Err() != context.Canceled {
		t.Error("a question does not end with its caller's context")
	} else {
		done()
	}
}
