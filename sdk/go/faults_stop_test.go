package sluicegate

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestRedisThatStopsUnderManyCallers stops Redis as a machine that hangs does: connections stay open without answers.
// Its bounds are for a busy machine; judge a quiet machine by the printed figures.
func TestRedisThatStopsUnderManyCallers(t *testing.T) {
	const deadline, burst, nodes = 50 * time.Millisecond, int64(200), int64(4)
	addr, ctx := freeAddr(), context.Background()
	server, err := startRedis(addr)
	if err != nil {
		skipOrFail(t, err.Error())
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 50})
	var log outageLog
	defer client.Close()
	gate, err := Direct(client, Deadline(deadline), Nodes(nodes), Logger(slog.New(&log)), NoWarmUp())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	hot, err := gate.Limit("hot", TokenBucket(100, time.Second).Burst(burst))
	if err != nil {
		t.Fatal(err)
	}
	// The script is there, and every caller has a connection.
	together(50, func(int) {
		eventually(t, "redis does not decide", func() bool {
			d, err := hot.Peek(ctx, "warm", 1)
			return err == nil && d.Mode == ModeStore
		})
	})

	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	log.began.Store(0)
	var admitted atomic.Int64
	longest := make([]time.Duration, 50)
	e := gate.decider.(local).engine
	end := stopped.Add(2 * time.Second)
	together(len(longest), func(i int) {
		for time.Now().Before(end) {
			began := time.Now()
			d, err := hot.Allow(ctx, "k")
			longest[i] = max(longest[i], time.Since(began))
			// A process that is late itself, as on a busy machine, takes Redis for busy for ten deadlines.
			late := d.Mode == ModeShed && began.Sub(stopped) < 10*deadline
			if err != nil || d.Mode != ModeLocal && !late {
				t.Errorf("%+v, %v", d, err)
				return
			}
			if d.Allowed {
				admitted.Add(1)
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	took := time.Since(stopped)
	if err := server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	continued := time.Now()
	eventually(t, "redis does not decide again", func() bool {
		d, err := hot.Peek(ctx, "other", 1)
		return err == nil && d.Mode == ModeStore
	})
	back, opened := time.Since(continued), time.Unix(0, log.began.Load()).Sub(stopped)

	t.Logf("longest call %v of a deadline of %v, breaker open after %v, %d admitted, back after %v",
		slices.Max(longest), deadline, opened, admitted.Load(), back)
	if slices.Max(longest) > deadline+250*time.Millisecond {
		t.Errorf("a call took %v", slices.Max(longest))
	}
	if opened < 0 || opened > time.Second {
		t.Errorf("the breaker opened after %v", opened)
	}
	// A share lets pass burst / nodes and rate / nodes a second, and one permit at the edge.
	if most := int64(float64(burst+1)/float64(nodes)+100*took.Seconds()/float64(nodes)) + 1; admitted.Load() > most || admitted.Load() < burst/nodes {
		t.Errorf("%d were admitted, expected %d to %d", admitted.Load(), burst/nodes, most)
	}
	if back > 5*time.Second {
		t.Errorf("redis decides again after %v", back)
	}
	// What was admitted without Redis is charged.
	eventually(t, "the debt is not paid", func() bool { return !e.Owes() })
}

// TestManyProgramsAndAServerUseOneBudget has 16 callers and a server take from one key as fast as they can, and
// compares what they got with what Redis' clock says that there was.
func TestManyProgramsAndAServerUseOneBudget(t *testing.T) {
	const rate, burst = 200, 100
	addr, ctx := redisAddr(t), context.Background()
	server := startServer(t, addr, `{"policies":[{"name":"hot","rules":[{"token_bucket":{"rate":"200/s","burst":100}}]}]}`)
	served, err := Remote("http://"+server, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	gates := []*Gate{direct(t, addr), direct(t, addr)}
	for _, gate := range gates {
		eventually(t, "the server did not publish", func() bool {
			_, err := gate.Policy("hot").Peek(ctx, "other", 1)
			return err == nil
		})
	}
	length, least := 2*time.Second, 0.90
	if long() {
		length, least = 30*time.Second, 0.99
	}
	clock := dial(t, addr)
	now := func() time.Time {
		at, err := clock.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	var admitted atomic.Int64
	began, end := now(), time.Now().Add(length)
	together(17, func(i int) {
		limiter := served.Policy("hot")
		if i < 16 {
			limiter = gates[i%2].Policy("hot")
		}
		for time.Now().Before(end) {
			d, err := limiter.Allow(ctx, "k")
			if err != nil || d.Mode != ModeStore && d.Mode != ModeRemembered {
				t.Errorf("%+v, %v", d, err)
				return
			}
			if d.Allowed {
				admitted.Add(1)
				continue
			}
			// As a caller does that is refused.
			time.Sleep(min(d.RetryAfter, 5*time.Millisecond))
		}
	})
	most := burst + rate*now().Sub(began).Seconds()
	t.Logf("%d admitted of %.1f: %.2f %%", admitted.Load(), most, 100*float64(admitted.Load())/most)
	if float64(admitted.Load()) > most {
		t.Errorf("%d were admitted, expected at most %.1f", admitted.Load(), most)
	}
	if used := float64(admitted.Load()) / most; used < least {
		t.Errorf("%.1f %% were used, expected %.0f %%", 100*used, 100*least)
	}
}

// A listener that does not even greet: as a Redis does that was frozen before the program began.
func TestAGateClosesInTimeThatNeverHadAConnection(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gate, err := Direct(dial(t, silent.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	_ = gate.Health(context.Background()) // and it has begun to subscribe
	began := time.Now()
	if err := gate.Close(); err != nil || time.Since(began) > patient/2 { // which the client lets a read take
		t.Error(err, time.Since(began))
	}
}
