package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestRedisPassesAllVectors(t *testing.T) {
	client := testkit.Dial(t, testkit.RedisAddr(t))
	at := time.Now()
	backend := NewRedis(wire.Conn{Client: client}, 5*time.Second, func() time.Time { return at }, func() wire.Clock { return wire.ClockGiven })
	for name, v := range testkit.LoadVectors(t) {
		t.Run(name, func(t *testing.T) {
			instant := int64(1000)
			plan := wire.NewPolicyRules(name, testkit.VectorSet(t, v.Rules, ""), instant)
			for place, step := range v.Steps {
				if step.Op == "configure" {
					instant++
					plan = wire.NewPolicyRules(name, testkit.VectorSet(t, step.Rules, step.Carry), instant)
					continue
				}
				r := step.Request()
				if r.Cost < 1 || r.Cost > kernel.CostMax {
					continue
				}
				got, f := backend.Decide(context.Background(), Request{Rules: plan, Key: wire.StateKey(name, "k"), Request: r})
				if step.Expect.Error == "unsupported" {
					if f == nil || f.Cause != wire.ErrUnsupported {
						t.Fatalf("step %d: %v, expected an unsupported verb", place, f)
					}
					continue
				}
				if f != nil {
					t.Fatalf("step %d: %v", place, f)
				}
				step.Compare(t, place, plan.Set, got.Verdict)
			}
		})
	}
}

func TestTheLaterVersionDecides(t *testing.T) {
	client := testkit.Dial(t, testkit.RedisAddr(t))
	ctx := context.Background()
	backend := NewRedis(wire.Conn{Client: client}, time.Second, time.Now, func() wire.Clock { return wire.ClockServer })
	old := compiled(t, 1000, testkit.Window(5, time.Hour))
	edited := compiled(t, 2000, testkit.Bucket(3, time.Hour, 0))
	check := func(p *wire.CompiledRules) Answer {
		t.Helper()
		a, f := backend.Decide(ctx, Request{Rules: p, Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1}})
		if f != nil {
			t.Fatal(f)
		}
		return a
	}
	if a := check(old); !a.Allowed || a.Remaining != 4 {
		t.Fatalf("%+v", a)
	}
	if a := check(edited); !a.Allowed || a.Set.Rules[0].Limit() != 3 {
		t.Fatalf("%+v", a)
	}
	// Another process that knows the later rules from Redis only.
	backend = NewRedis(wire.Conn{Client: client}, time.Second, time.Now, func() wire.Clock { return wire.ClockServer })
	left := int64(0)
	for range 10 {
		if a := check(old); a.Set.Rules[0].Limit() != 3 {
			t.Fatalf("the older rules decided: %+v", a)
		} else if a.Allowed {
			left++
		}
	}
	if left > 2 {
		t.Errorf("%d more passed, of a limit of 3", left)
	}
}

func TestVersionsInTurnLetPassWhatTheLaterOneDoes(t *testing.T) {
	for name, versions := range map[string][2]kernel.Spec{
		"reset":        {testkit.Bucket(10, time.Second, 0), testkit.Bucket(20, time.Second, 0)},
		"to a window":  {testkit.Bucket(10, time.Second, 0), testkit.Window(20, time.Second)},
		"to a counter": {{Code: kernel.CodeSlidingLog, Limit: 10, WindowUS: 1_000_000}, {Code: kernel.CodeSlidingCounter, Limit: 20, WindowUS: 1_000_000}},
	} {
		t.Run(name, func(t *testing.T) {
			client, ctx := testkit.Dial(t, testkit.RedisAddr(t)), context.Background()
			backend := NewRedis(wire.Conn{Client: client}, time.Second, time.Now, func() wire.Clock { return wire.ClockGiven })
			plans := []*wire.CompiledRules{}
			for i, rule := range versions {
				set := testkit.Set(t, testkit.Named("r", rule))
				set.Carry = kernel.CarryReset
				plans = append(plans, wire.NewPolicyRules("a", set, int64(1000+i)))
			}
			passed := 0
			for i := range 3000 {
				q := Request{Rules: plans[i%2], Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1, Now: kernel.Year2026US + int64(i)*10_000}}
				a, f := backend.Decide(ctx, q)
				if f != nil {
					t.Fatal(f)
				}
				if a.Allowed {
					passed++
				}
			}
			// 30 seconds of 20 a second, and a burst.
			if passed < 540 || passed > 620 {
				t.Errorf("%d passed, expected some 600", passed)
			}
		})
	}
}

// Dial, greeting, script and request testkit.Together take four round trips; a request may take less than two.
func TestAConnectionThatTakesLongerThanARequestIsMade(t *testing.T) {
	const away = 100 * time.Millisecond
	client := redis.NewClient(&redis.Options{Addr: testkit.NewSlowRelay(t, testkit.RedisAddr(t), away, away).Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	backend := NewRedis(wire.Conn{Client: client}, away*3/2, time.Now, func() wire.Clock { return wire.ClockServer })
	background, stop := context.WithCancel(context.Background())
	defer stop()
	backend.background = background
	p := compiled(t, 1, testkit.Window(9, time.Hour))
	q := Request{Rules: p, Key: wire.StateKey("far", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1}}
	var f *wire.Failure
	for range 50 {
		if _, f = backend.Decide(context.Background(), q); f == nil {
			return
		}
	}
	t.Fatalf("no question is decided: %v", f)
}

func TestTheDeadlineHoldsWhileOneWaitsForAConnection(t *testing.T) {
	addr, ctx := testkit.RedisAddr(t), context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 1, PoolTimeout: time.Minute})
	defer client.Close()
	taken := client.Conn()
	if err := taken.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	backend := NewRedis(wire.Conn{Client: client}, 50*time.Millisecond, time.Now, func() wire.Clock { return wire.ClockServer })
	p := compiled(t, 1, testkit.Window(9, time.Hour))
	q := Request{Rules: p, Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1}}
	cancellable, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, c := range map[string]context.Context{"background": ctx, "cancellable": cancellable} {
		began := time.Now()
		_, f := backend.Decide(c, q)
		took := time.Since(began)
		// A process that is late itself, as on a busy machine, takes Redis for busy.
		late := f != nil && f.Class == wire.ClassOverloaded && took > 240*time.Millisecond
		if f == nil || f.Class != wire.ClassNoAnswer && !late || f.Charged {
			t.Fatalf("%s: %+v after %v", name, f, took)
		}
		t.Logf("%s: %v", name, took)
		if took < 50*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s: took %v, expected 50 ms", name, took)
		}
	}
	taken.Close()
	backend.Deadline = testkit.Patient
	if _, f := backend.Decide(ctx, q); f != nil {
		t.Error(f)
	}
}

func TestRequestsThatEndTogetherShareATimer(t *testing.T) {
	s, ctx := &Redis{Deadline: testkit.Patient}, context.Background()
	first, _ := s.withDeadline(ctx, s.Deadline)
	second, _ := s.withDeadline(ctx, s.Deadline)
	if first.Done() != second.Done() {
		t.Error("two questions at a time have two timers")
	}
	s = &Redis{Deadline: time.Millisecond}
	third, _ := s.withDeadline(ctx, s.Deadline)
	<-third.Done()
	if third.Err() != context.DeadlineExceeded {
		t.Error(third.Err())
	}
	fourth, _ := s.withDeadline(ctx, s.Deadline)
	if fourth.Done() == third.Done() {
		t.Error("a question ends before it begins")
	}
	earlier, cancel := context.WithTimeout(ctx, time.Hour)
	cancel()
	if limited, done := s.withDeadline(earlier, s.Deadline); limited.Err() != context.Canceled {
		t.Error("a question does not end with its caller's context")
	} else {
		done()
	}
}

// As after a reply that was lost.
func TestADebtThatIsSentAgainIsChargedOnce(t *testing.T) {
	client := testkit.Dial(t, testkit.RedisAddr(t))
	backend := NewRedis(wire.Conn{Client: client}, time.Second, time.Now, func() wire.Clock { return wire.ClockServer })
	p := compiled(t, 1, testkit.Window(20, time.Hour))
	q := Request{Rules: p, Key: wire.StateKey("a", "k"), Request: kernel.Request{Verb: kernel.VerbCheck, Cost: 1},
		Debt: &DebtCharge{id: wire.NewID(), owed: []int64{5}, usedThen: kernel.NewKeyState(p.Set)}}
	for i := range int64(2) {
		a, f := backend.Decide(context.Background(), q)
		if f != nil || a.Charged[0] != 5 || a.Remaining != 14-i {
			t.Fatalf("%+v, %v", a, f)
		}
	}
}

// replyError is an error of Redis, as the client library returns it.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestARequestThatHadNoConnectionSaysWhatALookSaw(t *testing.T) {
	s, late := NewRedis(wire.Conn{}, time.Second, time.Now, nil), context.DeadlineExceeded
	for _, c := range []struct {
		looked error
		sent   bool
		want   string
	}{
		{late, false, "no answer in time: context deadline exceeded"},
		{errors.New("dial tcp: refused"), false, "no connection: dial tcp: refused"},
		{late, false, "no connection: dial tcp: refused"}, // which sees no more
		{context.Canceled, true, "no answer in time: context deadline exceeded"},
		{replyError("WRONGPASS invalid"), false, "no answer in time; the one before: WRONGPASS invalid"},
		{errors.New(`redis: can't parse "HTTP/1.1 400"`), false, `no answer in time; the one before: redis: can't parse "HTTP/1.1 400"`},
		{nil, false, "no answer in time: context deadline exceeded"},
	} {
		s.Looked(c.looked)
		if got := s.Cause(late, c.sent); got.Error() != c.want {
			t.Errorf("%v, %v: %v, expected %s", c.looked, c.sent, got, c.want)
		}
	}
}
