package sluicegate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// relay passes a Redis on, and can swallow a reply and cut the line.
type relay struct {
	addr    string
	swallow atomic.Bool // the next reply to a script
	down    atomic.Bool
	calls   atomic.Int64
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	r := &relay{}
	r.addr = testkit.Accept(t, func(near net.Conn) { r.pass(near, to) })
	return r
}

func (r *relay) pass(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil || r.down.Load() {
		return
	}
	defer far.Close()
	var pending atomic.Bool // a call of the script waits for its reply
	go func() {
		in := make([]byte, 1<<17)
		for {
			n, err := far.Read(in)
			if err != nil || r.down.Load() || pending.Swap(false) && r.swallow.CompareAndSwap(true, false) {
				near.Close()
				return
			}
			near.Write(in[:n])
		}
	}()
	in := make([]byte, 1<<17)
	for {
		n, err := near.Read(in)
		if err != nil || r.down.Load() {
			return
		}
		if strings.Contains(string(in[:n]), "evalsha") {
			r.calls.Add(1)
			pending.Store(true)
		}
		far.Write(in[:n])
	}
}

// outageLog keeps when a gate first reports that it does not ask Redis any more.
type outageLog struct {
	slog.Handler
	began atomic.Int64
}

func (*outageLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *outageLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "redis is not asked") {
		l.began.CompareAndSwap(0, time.Now().UnixNano())
	}
	return nil
}

func TestALostReplyIsChargedOnceAndNotRepeated(t *testing.T) {
	addr := redisAddr(t)
	publishRecords(t, addr, 1, map[string]string{"a": recordWith(t, "deny", nil)})
	relay, ctx := newRelay(t, addr), context.Background()
	client := redis.NewClient(&redis.Options{Addr: relay.addr, ContextTimeoutEnabled: true, MaxRetries: 3})
	defer client.Close()
	gate, err := Direct(client, App("shop"), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	a, other := gate.Policy("a"), direct(t, addr).Policy("a")
	if d, err := a.Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
		t.Fatal(d, err)
	}
	for i := range int64(4) {
		before := relay.calls.Load()
		relay.swallow.Store(true)
		d, err := a.Allow(ctx, "k")
		if err != nil || d.Allowed || d.Mode != ModeDeny || relay.calls.Load() != before+1 {
			t.Fatalf("%+v, %v, %d calls", d, err, relay.calls.Load()-before)
		}
		if d, _ := other.Peek(ctx, "k", 1); d.Remaining != 98-i {
			t.Fatalf("%d: %d remain, expected %d", i, d.Remaining, 98-i)
		}
		// A success in between keeps the breaker closed.
		for range 2 {
			if _, err := a.Peek(ctx, "k", 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	relay.swallow.Store(true)
	_, err = a.Refund(ctx, "k", 1)
	if !errors.Is(err, ErrPerhapsCharged) {
		t.Fatal(err)
	}
	if d, _ := other.Peek(ctx, "k", 1); d.Remaining != 96 {
		t.Fatalf("refunded %d times", d.Remaining-95)
	}
}

func TestAKeyThatCannotBeReadLeavesOthersAlone(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(100, time.Hour))
	a := direct(t, addr).Policy("a")
	client := dial(t, addr)
	if err := client.HSet(ctx, wire.StateKey("a", "bad"), "f", "v").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(ctx, wire.StateKey("a", "short"), "\x01", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		d, err := a.Allow(ctx, "bad")
		if err != nil || d.Allowed || d.Mode != ModeDeny || d.RetryAfter != time.Second {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if d, err := a.Allow(ctx, "good"); err != nil || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestWithoutRedisTheShareDecidesAndTheDebtIsPaid(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(100, time.Hour))
	relay := newRelay(t, addr)
	gate := direct(t, relay.addr, Nodes(4), Deadline(patient))
	a, other := gate.Policy("a"), direct(t, addr).Policy("a")
	if d, err := a.AllowN(ctx, "k", 20); err != nil || d.Mode != ModeStore {
		t.Fatal(d, err)
	}
	relay.down.Store(true)
	admitted := 0
	for range 40 {
		d, err := a.Allow(ctx, "k")
		if err != nil || d.Mode != ModeLocal || d.Limit != 25 {
			t.Fatalf("%+v, %v", d, err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("%d passed, expected 20: a quarter of what Redis left", admitted)
	}
	if _, err := a.Refund(ctx, "k", 1); !errors.Is(err, ErrNotCharged) {
		t.Errorf("%v", err)
	}
	relay.down.Store(false)
	eventually(t, "the debt was not paid", func() bool {
		d, err := other.Peek(ctx, "k", 1)
		return err == nil && d.Remaining == 60
	})
	eventually(t, "the store does not decide again", func() bool {
		d, err := a.Peek(ctx, "k", 1)
		return err == nil && d.Mode == ModeStore && d.Remaining == 60
	})
}

func TestLimitsMadeInCodeNeedNothingElseInRedis(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	gate := direct(t, addr)
	mail, err := gate.Limit("mail", FixedWindow(10, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := mail.AllowN(ctx, "k", 4); err != nil || d.Remaining != 6 || d.Rule != "limit" {
		t.Fatalf("%+v, %v", d, err)
	}
	other, _ := gate.Limit("mail", FixedWindow(20, time.Hour))
	if d, err := other.Allow(ctx, "k"); err != nil || d.Remaining != 15 {
		t.Fatalf("usage was not taken over: %+v, %v", d, err)
	}
	keys, _ := dial(t, addr).Keys(ctx, "*").Result()
	if len(keys) != 1 || keys[0] != wire.StateKey("limit:mail", "k") {
		t.Errorf("%v, expected one key", keys)
	}
	publishRecords(t, addr, 1, map[string]string{"mail": recordWith(t, "window", nil)})
	if d, err := direct(t, addr).Policy("mail").Allow(ctx, "k"); err != nil || d.Remaining != 4 {
		t.Errorf("a policy of that name has another budget: %+v, %v", d, err)
	}
	if d, err := other.Peek(ctx, "k", 1); err != nil || d.Remaining != 15 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestAScriptThatIsGoneIsLoadedAgain(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	gate := direct(t, addr)
	mail, _ := gate.Limit("mail", PerHour(10))
	for range 3 {
		if err := dial(t, addr).ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if d, err := mail.Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
			t.Fatalf("%+v, %v", d, err)
		}
	}
}

// TestTheUserOfProgramsHasTheRightsForIt does everything that a program does as the user that a server prints for it.
func TestTheUserOfProgramsHasTheRightsForIt(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	admin := dial(t, addr)
	printed, err := exec.Command(serverProgram(t), "redis-acl").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(printed), "user sluicegate-program ")
	line, _, _ = strings.Cut(line, "\n")
	if !found || !strings.Contains(line, ">PASSWORD") {
		t.Fatalf("no user for programs: %s", printed)
	}
	args := []any{"acl", "setuser", "sluicegate-program"}
	for _, right := range strings.Fields(strings.ReplaceAll(line, ">PASSWORD", ">secret")) {
		args = append(args, right)
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
	for revision, protocol := range []int{2, 3} {
		publish(t, addr, int64(10*revision+1), FixedWindow(100, time.Hour))
		client := redis.NewClient(&redis.Options{Addr: addr, Username: "sluicegate-program", Password: "secret",
			ContextTimeoutEnabled: true, Protocol: protocol})
		gate, err := Direct(client, App("shop"), Deadline(patient))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := gate.Policy("a").Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
			t.Errorf("RESP%d, a check: %+v, %v", protocol, d, err)
		}
		publish(t, addr, int64(10*revision+2), FixedWindow(7, time.Hour))
		eventually(t, "an edit is not followed", func() bool {
			d, err := gate.Policy("a").Peek(ctx, "k", 1)
			return err == nil && d.Mode == ModeStore && d.Limit == 7
		})
		mail, _ := gate.Limit("mail", PerHour(10))
		if d, err := mail.Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
			t.Errorf("RESP%d, a limit made in code: %+v, %v", protocol, d, err)
		}
		jobs, _ := gate.Limit("jobs", Concurrency(1, time.Hour))
		if permit, err := jobs.Acquire(ctx, "k"); err != nil || permit.Release(ctx) != nil {
			t.Errorf("RESP%d, a permit: %v", protocol, err)
		}
		gate.Close()
		client.Close()
	}
}

func TestManyGoroutinesNeverExceedTheLimit(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(50, time.Hour))
	a := direct(t, addr, Deadline(patient)).Policy("a")
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				d, err := a.Allow(ctx, "k")
				if err != nil {
					t.Error(err)
				} else if d.Allowed {
					passed.Add(1)
				}
			}
		}()
	}
	if all.Wait(); passed.Load() != 50 {
		t.Errorf("%d passed, expected 50", passed.Load())
	}
}

func TestWhatWasNotSentIsNotCharged(t *testing.T) {
	ctx := context.Background()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, addr := range []string{freeAddr(), silent.Addr().String()} {
		gate := direct(t, addr, Deadline(200*time.Millisecond))
		mail, _ := gate.Limit("mail", PerHour(10))
		started := time.Now()
		_, err := mail.Refund(ctx, "k", 1)
		if took := time.Since(started); !errors.Is(err, ErrNotCharged) || took > 5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if d, err := mail.Allow(ctx, "k"); err != nil || !d.Allowed || d.Mode != ModeLocal {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := onFailure(t, mail, FailDeny).Allow(ctx, "k"); err != nil || d.Allowed || d.Mode != ModeDeny {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := onFailure(t, mail, FailAllow).AllowN(ctx, "k", 99); err != nil || !d.Allowed || d.Mode != ModeAllow {
			t.Errorf("%+v, %v", d, err)
		}
		if _, err := gate.Policy("a").Allow(ctx, "k"); !errors.Is(err, ErrNotCharged) {
			t.Errorf("%v", err)
		}
	}
}

func TestACallerThatGoesAwayIsToldWhetherItWasCharged(t *testing.T) {
	addr := redisAddr(t)
	stall := newRelay(t, addr)
	gate := direct(t, stall.addr, Deadline(patient))
	mail, _ := gate.Limit("mail", PerHour(10))
	if d, err := mail.Allow(context.Background(), "k"); err != nil || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := dial(t, addr).Do(context.Background(), "client", "pause", "60000", "write").Err(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 20*time.Millisecond)
		},
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
	} {
		ctx, cancel := end()
		_, err := mail.Allow(ctx, "k")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) ||
			!errors.Is(err, ErrInterrupted) && !errors.Is(err, ErrNotCharged) {
			t.Errorf("%v", err)
		}
	}
	if err := dial(t, addr).Do(context.Background(), "client", "unpause").Err(); err != nil {
		t.Fatal(err)
	}
	if d, err := mail.Allow(context.Background(), "k"); err != nil || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
}

func TestAClientWithoutTimeoutsIsRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	if _, err := Direct(client); err == nil {
		t.Error("expected an error")
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	addr := redisAddr(t)
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	before := runtime.NumGoroutine()
	for range 20 {
		gate, err := Direct(client)
		if err != nil {
			t.Fatal(err)
		}
		mail, _ := gate.Limit("mail", PerHour(10))
		if _, err := mail.Allow(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := gate.Close(); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before+2 })
}
