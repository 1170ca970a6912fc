package sluicegate

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// refusedGate returns a limiter and a key that is refused from now on, as is remembered.
func refusedGate(tb testing.TB) (*Limiter, string) {
	a := newGate(tb, newManual(), Rules("a", FixedWindow(1, time.Hour))).Policy("a")
	for range 2 {
		if _, err := a.Allow(context.Background(), "198.51.100.7"); err != nil {
			tb.Fatal(err)
		}
	}
	return a, "198.51.100.7"
}

func TestARefusalThatIsRememberedAllocatesNothing(t *testing.T) {
	a, key := refusedGate(t)
	ctx := context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		if d, err := a.Allow(ctx, key); err != nil || d.Mode != ModeRemembered {
			t.Fatalf("%+v, %v", d, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, expected none", allocs)
	}
}

func TestDecisionsLeaveNoMemoryBehind(t *testing.T) {
	const decisions, keys, most = 1_000_000, 1_000, 1 << 20
	clock, ctx := newManual(), context.Background()
	gate := newGate(t, clock, Rules("a", PerSecond(10).Burst(5)))
	a, names := gate.Policy("a"), make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	decide := func(n int) {
		for i := range n {
			if i%keys == 0 {
				clock.Advance(50 * time.Millisecond)
			}
			if _, err := a.Allow(ctx, names[i%keys]); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	decide(decisions / 10) // what is kept of each key is there
	before := heap()
	decide(decisions)
	if grown := heap() - before; grown > most {
		t.Errorf("the heap grew by %d bytes in %d decisions, expected at most %d", grown, decisions, most)
	}
}

// BenchmarkRefused decides a key that is known to be refused.
func BenchmarkRefused(b *testing.B) {
	a, key := refusedGate(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.Allow(ctx, key)
	}
}

// BenchmarkCheck has Redis decide, over a connection that is there.
func BenchmarkCheck(b *testing.B) {
	addr, ctx := freeAddr(), context.Background()
	server, err := startRedis(addr)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()
	gate, err := Direct(client, Deadline(patient))
	if err != nil {
		b.Fatal(err)
	}
	defer gate.Close()
	hot, err := gate.Limit("hot", PerSecond(1_000_000_000).Burst(1_000_000_000))
	if err != nil {
		b.Fatal(err)
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if d, err := hot.Allow(ctx, keys[i%len(keys)]); err != nil || d.Mode != ModeStore {
			b.Fatal(d, err)
		}
		i++
	}
}
