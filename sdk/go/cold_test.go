package sluicegate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// burst sends so many requests at a time, and counts those that pass and the modes.
func burst(t *testing.T, limiter *Limiter, key string, n int) (passed int64, modes map[Mode]int) {
	t.Helper()
	decisions := make([]Decision, n)
	together(n, func(i int) {
		d, err := limiter.Allow(context.Background(), key)
		if err != nil {
			t.Error(err)
		}
		decisions[i] = d
	})
	modes = map[Mode]int{}
	for _, d := range decisions {
		modes[d.Mode]++
		if d.Allowed {
			passed++
		}
	}
	return passed, modes
}

// Two connections and 60 ms for each reply, and a policy whose server would have its callers wait for five seconds.
func TestOnOverloadOfAPolicyIsForServers(t *testing.T) {
	addr := redisAddr(t)
	changed := rulesOf(ruleSetOf(t, FixedWindow(1000, time.Hour)))
	changed["version"], changed["app"] = 1, "shop"
	changed["document"] = map[string]any{"name": "a", "on_overload": map[string]any{"wait": "5s"}}
	changed["on_overload"] = map[string]any{"wait": "5s"} // no member of a record
	publishRecords(t, addr, 1, map[string]string{"a": recordWith(t, "window", changed)})
	relay := newSlowRelay(t, addr, 0, 0)
	limiter := coldGate(t, relay.Addr, func(o *redis.Options) { o.PoolSize = 2 }, NoWarmUp(), Deadline(200*time.Millisecond)).Policy("a")
	eventually(t, "redis does not decide", func() bool {
		d, err := limiter.Allow(context.Background(), "warm")
		return err == nil && d.Mode == ModeStore
	})
	relay.Later.Store(int64(60 * time.Millisecond))
	began := time.Now()
	_, modes := burst(t, limiter, "k", 50)
	if took := time.Since(began); modes[ModeShed] == 0 || took > 4*time.Second {
		t.Errorf("%v after %v", modes, took)
	}
}

// coldGate starts a program with the pool and the deadline that it has by default.
func coldGate(t *testing.T, addr string, change func(*redis.Options), opts ...Option) *Gate {
	t.Helper()
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	if change != nil {
		change(o)
	}
	client := redis.NewClient(o)
	gate, err := Direct(client, append([]Option{App("shop")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close(); client.Close() })
	return gate
}

// coldAddr is the variable by which this program, started again by its test, is a process that has just started.
const coldAddr = "SLUICEGATE_TEST_COLD_ADDR"

func TestTheFirstRequestsOfAProcessAdmitExactlyTheLimit(t *testing.T) {
	if addr := os.Getenv(coldAddr); addr != "" {
		passed, modes := burst(t, coldGate(t, addr, nil).Policy("a"), "k", 50)
		fmt.Println("passed", passed, "local", modes[ModeLocal], "shed", modes[ModeShed])
		return
	}
	addr, ctx := redisAddr(t), context.Background()
	for range 20 {
		if err := dial(t, addr).FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		publish(t, addr, 1, FixedWindow(20, time.Hour))
		process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		process.Env = append(os.Environ(), coldAddr+"="+addr, "GORACE=atexit_sleep_ms=0")
		output, err := process.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "passed 20 local 0 shed 0\n") {
			t.Errorf("%v: %s", err, output)
		}
	}
}

// The deadline is over before most connections are made, so Redis decides some of the requests and the share decides others.
func TestAColdProcessWithADeadlineOfAMillisecondAdmitsNoMoreThanTheLimit(t *testing.T) {
	if addr := os.Getenv(coldAddr); addr != "" {
		passed, modes := burst(t, coldGate(t, addr, nil, NoWarmUp(), Deadline(time.Millisecond)).Policy("a"), "k", 50)
		fmt.Println("passed", passed, modes)
		return
	}
	addr, ctx, starts := redisAddr(t), context.Background(), 5
	if long() {
		starts = 100
	}
	for range starts {
		if err := dial(t, addr).FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		publish(t, addr, 1, FixedWindow(20, time.Hour))
		process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		process.Env = append(os.Environ(), coldAddr+"="+addr, "GORACE=atexit_sleep_ms=0")
		output, err := process.CombinedOutput()
		_, found, _ := strings.Cut(string(output), "passed ")
		passed := -1
		if _, scanErr := fmt.Sscan(found, &passed); err != nil || scanErr != nil || passed < 0 || passed > 20 {
			t.Errorf("%v: %s", err, output)
		}
		line, _, _ := strings.Cut(found, "\n")
		t.Log(line)
	}
}

// A connection takes longer than a request may, as with TLS on a busy machine.
func TestFirstConnectionsThatAreSlowAreNoReasonForAShare(t *testing.T) {
	addr := redisAddr(t)
	publish(t, addr, 1, FixedWindow(20, time.Hour))
	relay := newSlowRelay(t, addr, 120*time.Millisecond, 0)
	limiter := coldGate(t, relay.Addr, nil).Policy("a")
	passed, modes := burst(t, limiter, "k", 50)
	if passed != 20 || modes[ModeLocal] > 0 {
		t.Errorf("%d passed of 20: %v", passed, modes)
	}
}

// Two connections and 60 ms for each reply: six of fifty have their answer within 200 ms.
func TestRequestsThatWaitForAConnectionAreShedAndNotDecidedByTheShare(t *testing.T) {
	addr := redisAddr(t)
	publish(t, addr, 1, FixedWindow(20, time.Hour))
	relay := newSlowRelay(t, addr, 0, 0)
	gate := coldGate(t, relay.Addr, func(o *redis.Options) { o.PoolSize = 2 }, NoWarmUp(), Deadline(200*time.Millisecond))
	limiter := gate.Policy("a")
	eventually(t, "redis does not decide", func() bool {
		d, err := limiter.Allow(context.Background(), "warm")
		return err == nil && d.Mode == ModeStore
	})
	relay.Later.Store(int64(60 * time.Millisecond))
	passed, modes := burst(t, limiter, "k", 50)
	if passed > 20 || modes[ModeLocal] > 0 || modes[ModeShed] == 0 {
		t.Errorf("%d passed of 20: %v", passed, modes)
	}
	if h := gate.Health(context.Background()); h.Status != StatusDegraded || h.Err == nil {
		t.Errorf("%+v", h)
	}
	relay.Later.Store(0)
	if d, err := limiter.Peek(context.Background(), "other", 1); err != nil || d.Mode != ModeStore {
		t.Errorf("a busy Redis opened the breaker: %+v, %v", d, err)
	}
}
