package sluicegate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// publishPool publishes the policy `a` of one permit, for which so many requests can wait.
func publishPool(t *testing.T, addr string, ttl time.Duration, queue int64, onFailure string) {
	t.Helper()
	rule := ruleSetOf(t, Concurrency(1, ttl)).Rules[0]
	made, err := kernel.RuleOf(rule.Code, rule.Flags, rule.NameHash, []float64{rule.Numbers[0], rule.Numbers[1], float64(queue)})
	if err != nil {
		t.Fatal(err)
	}
	made.Name = "concurrency"
	changed := rulesOf(kernel.NewRuleSet([]kernel.Rule{made}, kernel.CarryUsage))
	changed["app"], changed["on_store_failure"] = "shop", onFailure
	fields := []any{"#format", "1", "#revision", "1", "#clock", "server", "a", recordWith(t, "window", changed)}
	if err := dial(t, addr).HSet(context.Background(), policy.PoliciesKey, fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

// asleepProgram returns a gate whose requests wake only if they are called.
func asleepProgram(t *testing.T, addr string) (*Limiter, testkit.Asleep) {
	t.Helper()
	clock := testkit.NewAsleep()
	clock.Set(time.Now().UnixMicro())
	return direct(t, addr, WithClock(clock)).Policy("a"), clock
}

// acquired is what became of an acquire.
type acquired struct {
	permit *Permit
	err    error
}

// acquireWithin acquires in the background.
func acquireWithin(ctx context.Context, l *Limiter, wait time.Duration) chan acquired {
	out := make(chan acquired, 1)
	go func() {
		permit, err := l.AcquireWithin(ctx, "k", wait)
		out <- acquired{permit, err}
	}()
	return out
}

// awaitListeners waits until so many programs hear calls.
func awaitListeners(t *testing.T, addr string, n int64) {
	t.Helper()
	client := dial(t, addr)
	eventually(t, "nobody hears calls", func() bool {
		return client.PubSubNumSub(context.Background(), wire.CallsChannel).Val()[wire.CallsChannel] == n
	})
}

func TestARequestThatWaitsInRedisIsCalledByWhoReleases(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "local")
	first, clockA := asleepProgram(t, addr)
	second, clockB := asleepProgram(t, addr)
	for i, c := range []struct {
		name  string
		waits *Limiter
		clock testkit.Asleep
	}{{"this process", first, clockA}, {"another process", second, clockB}} {
		held := mustHold(t, first, "k")
		got := acquireWithin(ctx, c.waits, time.Hour)
		<-c.clock.Began
		awaitListeners(t, addr, int64(i+1))
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		a := <-got
		if a.err != nil || a.permit.Decision.Mode != ModeStore || a.permit.Decision.Granted != 1 {
			t.Fatalf("%s: %+v, %v", c.name, a.permit, a.err)
		}
		if err := a.permit.Release(ctx); err != nil {
			t.Error(err)
		}
		mustBeFree(t, first, "k")
	}
}

func TestAProgramThatHearsNoCallAsksEverySecond(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "local")
	clock := newManual()
	clock.Set(time.Now().UnixMicro())
	client := dial(t, addr)
	asked := &asks{}
	client.AddHook(asked)
	gate, err := Direct(client, App("shop"), Deadline(patient), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	held := mustHold(t, gate.Policy("a"), "k")
	before, began := asked.n.Load(), clock.Now()
	if _, err := gate.Policy("a").AcquireWithin(ctx, "k", 10*time.Second); !errors.Is(err, ErrLimited) || clock.Now().Sub(began) != 10*time.Second {
		t.Error(err, clock.Now().Sub(began))
	}
	// One as it begins, one each second until the last, and the ticket is given back.
	if calls := asked.n.Load() - before; calls < 10 || calls > 12 {
		t.Errorf("%d calls", calls)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	mustBeFree(t, gate.Policy("a"), "k")
}

// asks counts the calls of the script.
type asks struct{ n atomic.Int64 }

func (a *asks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *asks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			a.n.Add(1)
		}
		return next(ctx, cmd)
	}
}
func (a *asks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// naps is a clock whose sleepers wake only when their context ends, and report how long they would sleep.
type naps struct {
	*manual
	began chan time.Duration
}

func (c naps) Sleep(ctx context.Context, d time.Duration) error {
	c.began <- d
	<-ctx.Done()
	return ctx.Err()
}

// The one behind it is called at once, and not when the ticket lapses. It keeps the tickets of its process from then on.
func TestARequestThatGivesUpInRedisPassesItsTurn(t *testing.T) {
	addr := redisAddr(t)
	publishPool(t, addr, time.Hour, 10, "local")
	clock := naps{newManual(), make(chan time.Duration)}
	clock.Set(time.Now().UnixMicro())
	l := direct(t, addr, WithClock(clock)).Policy("a")
	held := mustHold(t, l, "k")
	ctx, cancel := context.WithCancel(context.Background())
	gone := acquireWithin(ctx, l, time.Hour)
	if nap := <-clock.began; nap > time.Second {
		t.Errorf("the first asks after %v", nap)
	}
	next := acquireWithin(context.Background(), l, time.Hour)
	if nap := <-clock.began; nap != time.Hour {
		t.Errorf("the second asks after %v", nap)
	}
	cancel()
	if a := <-gone; !errors.Is(a.err, context.Canceled) || !errors.Is(a.err, ErrNotCharged) {
		t.Error(a.err)
	}
	if nap := <-clock.began; nap > time.Second {
		t.Errorf("the second asks after %v when it is the first", nap)
	}
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	a := <-next
	if a.err != nil {
		t.Fatal(a.err)
	}
	if err := a.permit.Release(context.Background()); err != nil {
		t.Error(err)
	}
	mustBeFree(t, l, "k")
}

func TestARequestWhoseContextHasEndedGetsNoPermit(t *testing.T) {
	addr := redisAddr(t)
	publishPool(t, addr, time.Hour, 10, "local")
	l := direct(t, addr).Policy("a")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.AcquireWithin(gone, "k", time.Hour); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotCharged) {
		t.Error(err)
	}
	if d, err := l.Peek(context.Background(), "k", 1); err != nil || d.Remaining != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTheFirstRequestAsksWhenAPermitLapses(t *testing.T) {
	addr := redisAddr(t)
	publishPool(t, addr, 700*time.Millisecond, 10, "local")
	clock := naps{newManual(), make(chan time.Duration)}
	clock.Set(time.Now().UnixMicro())
	l := direct(t, addr, WithClock(clock)).Policy("a")
	mustHold(t, l, "k")
	ctx, cancel := context.WithCancel(context.Background())
	gone := acquireWithin(ctx, l, time.Hour)
	if nap := <-clock.began; nap > 700*time.Millisecond {
		t.Errorf("it asks after %v", nap)
	}
	cancel()
	if a := <-gone; !errors.Is(a.err, context.Canceled) {
		t.Error(a.err)
	}
}

func TestAFullQueueInRedisRefusesAtOnce(t *testing.T) {
	addr := redisAddr(t)
	publishPool(t, addr, time.Hour, 1, "local")
	l, clock := asleepProgram(t, addr)
	held := mustHold(t, l, "k")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waits := make(chan error)
	go func() {
		_, err := l.AcquireNWithin(ctx, "k", "first", 1, time.Hour)
		waits <- err
	}()
	<-clock.Began
	if _, err := l.AcquireNWithin(ctx, "k", "first", 1, time.Hour); !errors.Is(err, ErrLimited) {
		t.Errorf("another one waits under the id: %v", err)
	}
	if _, err := l.AcquireWithin(ctx, "k", time.Hour); !errors.Is(err, ErrLimited) {
		t.Error(err)
	}
	if _, err := l.AcquireNWithin(ctx, "k", held.ID, 1, time.Hour); !errors.Is(err, ErrLimited) {
		t.Errorf("the id is held already: %v", err)
	}
	if _, err := l.AcquireNWithin(ctx, "k", "many", 2, time.Hour); !errors.Is(err, ErrLimited) {
		t.Errorf("the cost is above the limit: %v", err)
	}
	if _, err := l.AcquireNWithin(ctx, "other", "one", 1, time.Hour); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	mustBeFree(t, l, "k")
}

// A lost answer may have brought the permit: a request that gives up then releases it.
func TestALostAnswerToAWaitHoldsNothing(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "deny")
	r := newRelay(t, addr)
	l := direct(t, r.addr, NoWarmUp(), Logger(nil)).Policy("a")
	if _, err := l.Peek(ctx, "k", 1); err != nil {
		t.Fatal(err)
	}
	r.swallow.Store(true)
	var limited *LimitedError
	if _, err := l.AcquireWithin(ctx, "k", time.Minute); !errors.As(err, &limited) || limited.Decision.Mode != ModeDeny {
		t.Fatal(err)
	}
	if d, err := direct(t, addr).Policy("a").Peek(ctx, "k", 1); err != nil || d.Remaining != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// One that waits on asks again under the same id, and finds that it holds the permit.
func TestALostGrantIsFoundByTheNextQuestion(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "deny")
	calls := dial(t, addr).Subscribe(ctx, wire.CallsChannel)
	defer calls.Close()
	other := direct(t, addr).Policy("a")
	held := mustHold(t, other, "k")
	r, clock := newRelay(t, addr), testkit.NewAsleep()
	clock.Set(time.Now().UnixMicro())
	got := acquireWithin(ctx, direct(t, r.addr, NoWarmUp(), Logger(nil), WithClock(clock)).Policy("a"), time.Hour)
	<-clock.Began
	awaitListeners(t, addr, 2)
	r.swallow.Store(true)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	<-clock.Began // the answer was lost
	called, err := calls.ReceiveMessage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(t, addr).Publish(ctx, wire.CallsChannel, called.Payload).Err(); err != nil {
		t.Fatal(err)
	}
	a := <-got
	if a.err != nil || a.permit.Decision.Mode != ModeStore || a.permit.Decision.Granted != 1 {
		t.Fatalf("%+v, %v", a.permit, a.err)
	}
	if err := a.permit.Release(ctx); err != nil {
		t.Error(err)
	}
	mustBeFree(t, other, "k")
}

func TestServersAndProgramsWaitInOneQueue(t *testing.T) {
	const rounds, waiters, limit = 3, 24, 3
	policies := fmt.Sprintf(`{"policies":[{"name":"pool","rules":[{"concurrency":{"limit":%d,"ttl":"1h","queue":1000}}]}]}`, limit)
	addr, ctx := redisAddr(t), context.Background()
	served := remoteOf(t, "http://"+startServer(t, addr, policies))
	var gates []*Gate
	eventually(t, "the server did not publish", func() bool {
		own := direct(t, addr)
		_, err := own.Policy("pool").Peek(ctx, "k", 1)
		gates = []*Gate{own, served, direct(t, addr)}
		return err == nil
	})
	var now, most atomic.Int64
	testkit.Together(waiters, func(i int) {
		for range rounds {
			permit, err := gates[i%len(gates)].Policy("pool").AcquireWithin(ctx, "k", time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			now.Add(-1)
			if err := permit.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	if most.Load() > limit {
		t.Errorf("%d at a time", most.Load())
	}
	mustBeFree(t, served.Policy("pool"), "k")
	for _, gate := range gates {
		if own, ok := gate.decider.(local); ok && own.engine.Waiting() != 0 {
			t.Errorf("%d wait still", own.engine.Waiting())
		}
	}
}

func TestWithoutRedisRequestsWaitForPermitsOfTheShare(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "local")
	clock := newManual()
	clock.Set(time.Now().UnixMicro())
	p := programAt(t, addr, clock, 1)
	p.line.away.Store(true)
	held, err := p.limiter.AcquireWithin(ctx, "k", time.Minute)
	if err != nil || held.Decision.Mode != ModeLocal {
		t.Fatalf("%+v, %v", held, err)
	}
	began := clock.Now()
	if _, err := p.limiter.AcquireWithin(ctx, "k", time.Minute); !errors.Is(err, ErrLimited) || clock.Now().Sub(began) != time.Minute {
		t.Error(err, clock.Now().Sub(began))
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	again, err := p.limiter.AcquireWithin(ctx, "k", 0)
	if err != nil || again.Decision.Mode != ModeLocal {
		t.Fatalf("%+v, %v", again, err)
	}
}

// Its request is gone, and the ticket could not be given back: it must not stand in the way while others of the process wait.
func TestATicketThatNoRequestWantsIsGivenBack(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "local")
	clock := newManual()
	clock.Set(time.Now().UnixMicro())
	gate := direct(t, addr, WithClock(clock))
	held := mustHold(t, gate.Policy("a"), "k")
	left, err := gate.decider.(local).engine.Decide(ctx, engine.Request{Policy: "a", Key: "k", Verb: kernel.VerbWait, Cost: 1, ID: "gone"})
	if err != nil || !left.Allowed || left.Granted != 0 {
		t.Fatalf("%+v, %v", left, err)
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	permit, err := gate.Policy("a").AcquireWithin(ctx, "k", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Release(ctx); err != nil {
		t.Error(err)
	}
	mustBeFree(t, gate.Policy("a"), "k")
}

// A Redis user without the right to publish: a message is tried once, and requests that wait elsewhere ask within a second.
func TestAProgramThatMayNotPublishTriesItOnce(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publishPool(t, addr, time.Hour, 10, "local")
	admin := dial(t, addr)
	acl := []any{"acl", "setuser", "program", "reset", "on", ">secret", "~sg:*", "resetchannels", "&sg:policies", "&sg:calls", "-@all",
		"+evalsha", "+script|load", "+get", "+set", "+del", "+time", "+ping", "+hmget", "+subscribe", "+hget", "+hgetall", "+hscan", "+hlen", "+unsubscribe", "+echo", "+select"}
	for _, do := range [][]any{acl, {"acl", "log", "reset"}} {
		if err := admin.Do(ctx, do...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { admin.Do(ctx, "acl", "deluser", "program"); admin.Do(ctx, "acl", "log", "reset") })
	client := redis.NewClient(&redis.Options{Addr: addr, Username: "program", Password: "secret", DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: patient})
	t.Cleanup(func() { client.Close() })
	gate, err := Direct(client, App("shop"), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	waits, clock := asleepProgram(t, addr)
	for round := range 3 {
		held := mustHold(t, gate.Policy("a"), "k")
		ctx, cancel := context.WithCancel(ctx)
		got := acquireWithin(ctx, waits, time.Hour)
		<-clock.Began
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			eventually(t, "nothing was published", func() bool { return gate.decider.(local).engine.IsMute() })
		}
		cancel()
		if a := <-got; !errors.Is(a.err, context.Canceled) {
			t.Errorf("%+v, %v", a.permit, a.err)
		}
	}
	denied, err := admin.Do(ctx, "acl", "log").Slice()
	if err != nil || len(denied) != 1 || !strings.Contains(fmt.Sprint(denied[0]), "count 1 ") && !strings.Contains(fmt.Sprint(denied[0]), "count:1 ") {
		t.Errorf("%v, %v", denied, err)
	}
}
