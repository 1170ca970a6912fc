package sluicegate

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// cutter passes a Redis on. Once armed it gives the client the first bytes of the next such reply, and cuts the
// line.
type cutter struct {
	addr string
	of   string // a word of the commands whose replies it cuts
	mu   sync.Mutex
	cut  func(length int) int // how many bytes of a reply the client gets; nil: all of all replies
}

func newCutter(t *testing.T, to string) *cutter { return newCutterOf(t, to, "evalsha") }

func newCutterOf(t *testing.T, to, word string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &cutter{addr: l.Addr().String(), of: word}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(near, to)
		}
	}()
	return c
}

func (c *cutter) arm(cut func(length int) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// take returns what was armed, once.
func (c *cutter) take() func(int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := c.cut
	c.cut = nil
	return cut
}

func (c *cutter) pass(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	cuts := make(chan func(int) int, 1) // the call under way is one whose reply is cut
	go func() {
		in := make([]byte, 1<<17)
		for {
			n, err := far.Read(in)
			if err != nil {
				near.Close()
				return
			}
			select {
			case cut := <-cuts:
				near.Write(in[:cut(n)])
				near.Close()
				return
			default:
				near.Write(in[:n])
			}
		}
	}()
	in := make([]byte, 1<<17)
	for {
		n, err := near.Read(in)
		if err != nil {
			return
		}
		if bytes.Contains(in[:n], []byte(c.of)) {
			if cut := c.take(); cut != nil {
				cuts <- cut
			}
		}
		far.Write(in[:n])
	}
}

// cutReplies asks through a proxy that cuts replies anywhere, and counts at Redis what was charged.
func cutReplies(t *testing.T, client redis.UniversalClient, watch redis.UniversalClient, arm func(key string, cut func(int) int)) {
	t.Helper()
	ctx, seed := context.Background(), uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	gate, err := Direct(client, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	other, err := Direct(watch, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	limitOf := func(g *Gate) *Limiter {
		l, err := g.Limit("cut", FixedWindow(1000, 366*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	denies, sees := onFailure(t, limitOf(gate), FailDeny), limitOf(other)
	tries := 20
	if long() {
		tries = 200
	}
	for i := range tries {
		key := string(rune('a' + i%5))
		before, err := sees.Peek(ctx, key, 1)
		if err != nil {
			t.Fatal(err)
		}
		at := -1
		arm(key, func(length int) int { at = r.IntN(length); return at })
		refund := i%4 == 3
		charged := int64(1)
		if refund {
			charged = -1
			if before.Remaining == 1000 {
				charged = 0
			}
			if _, err := denies.Refund(ctx, key, 1); !errors.Is(err, ErrPerhapsCharged) {
				t.Fatalf("try %d, cut after %d bytes: %v, expected `perhaps charged`", i, at, err)
			}
		} else if d, err := denies.Allow(ctx, key); err != nil || d.Allowed || d.Mode != ModeDeny {
			t.Fatalf("try %d, cut after %d bytes: %+v, %v", i, at, d, err)
		}
		after, err := sees.Peek(ctx, key, 1)
		if err != nil || before.Remaining-after.Remaining != charged {
			t.Fatalf("try %d, cut after %d bytes: charged %d, expected %d; %v", i, at, before.Remaining-after.Remaining, charged, err)
		}
		// Successes in between keep the breaker closed.
		for range 2 {
			if d, err := denies.Peek(ctx, key, 1); err != nil || d.Mode != ModeStore {
				t.Fatalf("try %d: %+v, %v", i, d, err)
			}
		}
	}
}

func TestAReplyThatIsCutAnywhereIsChargedOnce(t *testing.T) {
	addr := redisAddr(t)
	proxy := newCutter(t, addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.addr, ContextTimeoutEnabled: true, MaxRetries: 3, ReadTimeout: patient})
	defer client.Close()
	cutReplies(t, client, dial(t, addr), func(_ string, cut func(int) int) { proxy.arm(cut) })
}

func TestAReplyOfAClusterThatIsCutAnywhereIsChargedOnce(t *testing.T) {
	ctx, addrs := context.Background(), startCluster(t)
	proxies := map[string]*cutter{}
	for _, addr := range addrs {
		proxies[addr] = newCutter(t, addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, MaxRedirects: 3, MaxRetries: 3, ReadTimeout: patient,
		NewClient: func(o *redis.Options) *redis.Client {
			if proxy := proxies[o.Addr]; proxy != nil {
				o.Addr = proxy.addr
			}
			return redis.NewClient(o)
		}})
	defer client.Close()
	direct := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: patient})
	defer direct.Close()
	cutReplies(t, client, direct, func(key string, cut func(int) int) {
		master, err := direct.MasterForKey(ctx, wire.StateKey("limit:cut", key))
		if err != nil {
			t.Fatal(err)
		}
		proxies[master.Options().Addr].arm(cut)
	})
}
