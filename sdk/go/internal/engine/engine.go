// Package engine decides requests under policies: by a store, and, while that does not answer, as the policy has it. It remembers
// refusals, holds requests back in a queue, and pays what is owed.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	denyRetryUS = 1_000_000
	shedRetryUS = 100_000
	// questionsMax is how many questions a decision asks at most while something is owed.
	questionsMax = 4
	// payEvery is how often debts of keys are paid that are not asked for.
	payEvery = 100 * time.Millisecond
	// payKeysMax is how many keys are paid for at a time: few beside the requests of others.
	payKeysMax = 64
	// payLastWithin bounds how long a process that stops pays what it owes.
	payLastWithin = time.Second
	payLastEvery  = 10 * time.Millisecond
	// followedWithin is how long an end waits for the last look and for the connection that messages come by.
	followedWithin = 100 * time.Millisecond
	SweepEvery     = time.Second
)

// WallClock is the clock of the machine. It does not jump when that is set: it goes on from when it was made.
type WallClock struct{ start time.Time }

// NewWallClock returns a clock that goes on from now.
func NewWallClock() WallClock { return WallClock{time.Now()} }

// Now returns the time.
func (c WallClock) Now() time.Time { return c.start.Add(time.Since(c.start)) }

// Sleep waits for d, or returns the error of the context if that ends before.
func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	return wire.Sleep(ctx, d)
}

// clocked is the time by which an engine works.
type clocked interface {
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

// Engine decides: by the store, and by what surrounds it while the store does not answer.
type Engine struct {
	Config
	store    store.Store
	redis    *store.Redis     // the store, if that is Redis
	follower *policy.Follower // nil: nothing is followed

	breaker    breaker
	remembered store.Refusals
	share      *store.Share
	queue      queue
	failing    atomic.Pointer[failing] // nil: the last question was answered
	shed       atomic.Pointer[failing] // the last that was answered too late, beside others; nil: none for a while

	stop     context.CancelFunc
	done     sync.WaitGroup
	followed chan struct{} // closed when policies are not followed any more
}

// Config is what an engine is made of.
type Config struct {
	Redis    redis.UniversalClient // nil: the engine decides in memory
	Policies *policy.Catalog
	App      string
	Nodes    int64         // 0: as the servers say
	Deadline time.Duration // of a question to Redis
	Cold     bool          // nothing is done ahead, nor does a question take longer at the start
	Clock    clocked
	Logger   *slog.Logger
	Notices  *notice.Log
}

// New makes an engine that does nothing by itself yet.
func New(c Config) *Engine {
	e := &Engine{Config: c, store: store.NewMemory(), share: store.NewShare()}
	if c.Redis != nil {
		conn := wire.Conn{Client: c.Redis}
		e.redis = store.NewRedis(conn, c.Deadline, c.Clock.Now, c.Policies.ClockNow)
		e.store, e.follower = e.redis, policy.NewFollower(c.Policies, conn)
		e.follower.Notices, e.follower.Looked = c.Notices, e.redis.Looked
	}
	return e
}

// Look looks for the policies, for a second at most, and reports whether Redis answered.
func (e *Engine) Look(ctx context.Context) bool {
	first, cancel := context.WithTimeout(ctx, policy.LookFirstWithin)
	defer cancel()
	err := e.follower.Look(first, false)
	e.follower.Report(err)
	return err == nil
}

// Start looks for the policies, warms up, and begins to follow policies and to pay debts.
func (e *Engine) Start() {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.redis.ConnectUntil(ctx)
	if e.Look(ctx) && !e.Cold {
		e.redis.Begin()
		e.redis.WarmUp(ctx)
		e.redis.Begin() // the seconds of the requests, which follow now
	}
	e.followed = make(chan struct{})
	go func() { defer close(e.followed); e.follower.Run(ctx) }()
	e.done.Add(1)
	go func() { defer e.done.Done(); e.run(ctx) }()
}

// Request is a request of a caller, whose values were checked.
type Request struct {
	Policy  string
	Fixed   *policy.Policy // of a limit made in code; nil: the policy is that of the name
	Key     string
	Verb    kernel.Verb
	Cost    int64
	MaxWait int64  // of reserve, in µs
	ID      string // of a permit
}

// Mode is what decided.
type Mode string

const (
	ModeStore      Mode = "store"
	ModeRemembered Mode = "remembered"
	ModeLocal      Mode = "local"
	ModeAllow      Mode = "allow"
	ModeDeny       Mode = "deny"
	ModeShed       Mode = "shed"
)

// Outcome is a decision, and all that it was made by.
type Outcome struct {
	store.Answer
	Policy *policy.Policy
	Plan   *wire.Plan
	Verb   kernel.Verb
	Mode   Mode
	HeldUS int64 // how long the request was held back
}

// PolicyError is the error of a request that is not decided under a policy. Other errors are a failure.
type PolicyError struct {
	Name string // that of spec/errors.json
	Text string
}

func (e *PolicyError) Error() string { return e.Text }

func policyErrorOf(name, format string, args ...any) error {
	return &PolicyError{name, fmt.Sprintf(format, args...)}
}

func (e *Engine) nowUS() int64 { return e.Clock.Now().UnixMicro() }

// nodes returns among how many nodes a limit is shared without Redis.
func (e *Engine) nodes() int64 {
	if e.Nodes > 0 {
		return e.Nodes
	}
	return max(e.Policies.NodesNow(), 1)
}

// policyFor finds the policy of a request, or says why it may not be used.
func (e *Engine) policyFor(ctx context.Context, a Request) (*policy.Policy, error) {
	if a.Fixed != nil {
		return a.Fixed, nil
	}
	name := a.Policy
	p, why := e.Policies.Get(name)
	if p == nil && e.follower != nil {
		if err := e.follower.LookFor(ctx, e.redis.DeadlineNow()); err != nil {
			e.redis.Connect(policy.PoliciesKey)
			return nil, &wire.Failure{Class: wire.ClassNoAnswer, Cause: e.redis.Cause(err, false)}
		}
		p, why = e.Policies.Get(name)
	}
	switch {
	case p == nil:
		return nil, e.missing(name, why)
	case p.Allows(e.App, a.Verb):
		return p, nil
	case e.App == "":
		return nil, policyErrorOf("app_missing", "app: policy `%s` is not available to a caller without an app", name)
	default:
		return nil, policyErrorOf("policy_not_available", "app: policy `%s` is not available to app `%s`", name, e.App)
	}
}

// missing returns the error of a policy that is not held; why says why it cannot be read.
func (e *Engine) missing(name, why string) error {
	held, found := e.Policies.State()
	if why == "" && held == 0 && found == policy.FoundFormat {
		why = policy.ErrFormat.Error()
	}
	switch {
	case why != "":
		return policyErrorOf("unreadable_policy", "policy: `%s` cannot be read: %s", name, lex.Cut(why))
	case held == 0 && found == policy.FoundNothing:
		return e.NothingPublished()
	default:
		return policyErrorOf("unknown_policy", "policy: unknown policy `%s`", name)
	}
}

// NothingPublished returns the error of a Redis that answers and in which no server publishes policies.
func (e *Engine) NothingPublished() error {
	return policyErrorOf("nothing_published", "policy: no policies are published in the Redis at %s; start a server on it (its `store.publish` is `true` unless set)", e.Address())
}

// Address returns where the Redis is; "" if there is none.
func (e *Engine) Address() string {
	if e.Redis == nil {
		return ""
	}
	return wire.Conn{Client: e.Redis}.Address()
}

// Decide decides a request. Its error is a *PolicyError or a *wire.Failure.
func (e *Engine) Decide(ctx context.Context, a Request) (Outcome, error) {
	p, err := e.policyFor(ctx, a)
	if err != nil {
		return Outcome{}, err
	}
	if p.Overflow.Kind == "queue" && a.Verb == kernel.VerbCheck {
		return e.queued(ctx, p, a)
	}
	return e.once(ctx, p, a)
}

// once decides a request, without holding it back.
func (e *Engine) once(ctx context.Context, p *policy.Policy, a Request) (Outcome, error) {
	pl := p.PlanFor(a.Key, e.nowUS())
	got, by, err := e.answer(ctx, p, pl, a)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Answer: got, Policy: p, Plan: pl, Verb: a.Verb, Mode: by}, nil
}

// answer goes through everything that may decide, in order.
func (e *Engine) answer(ctx context.Context, p *policy.Policy, pl *wire.Plan, a Request) (store.Answer, Mode, error) {
	now := e.nowUS()
	if !pl.Set.Supports(a.Verb) {
		return store.Answer{}, "", Unsupported(a.Verb, p.Name)
	}
	at := wire.PlaceOf(pl.Policy, a.Key)
	if a.Verb == kernel.VerbCheck {
		if got, ok := e.remembered.Find(at, pl, a.Cost, now); ok {
			return got, ModeRemembered, nil
		}
	}
	q := store.Question{Plan: pl, Key: string(at[:]), Request: kernel.Request{
		Verb: a.Verb, Cost: a.Cost, MaxWait: a.MaxWait, Now: now, Windows: pl.Windows(now),
	}}
	if a.ID != "" {
		q.Permit = kernel.PermitOf(a.ID)
	}
	if a.Verb == kernel.VerbRelease || a.Verb == kernel.VerbRenew {
		if got, ok := e.share.OnPermit(q); ok {
			return got, ModeLocal, nil
		}
	}
	f := notSent
	if e.breaker.allows(now) {
		var got store.Answer
		if got, f = e.decideOwing(ctx, q); f == nil || f.Class != wire.ClassCaller || f.Cause == wire.ErrUnsupported {
			e.count(now, f)
		}
		if f == nil {
			e.learn(q, got)
			return got, ModeStore, nil
		}
	}
	if (a.Verb == kernel.VerbRefund || a.Verb == kernel.VerbReset) && f.Class != wire.ClassCaller {
		e.remembered.Drop(q.Key)
	}
	return e.without(p, q, f)
}

// notSent is the failure of a request while the breaker is open.
var notSent = &wire.Failure{Class: wire.ClassNoAnswer, Cause: errors.New("redis did not decide before, and is not asked now")}

// Unsupported returns the error of a verb that the rules of a policy do not have.
func Unsupported(v kernel.Verb, policy string) error {
	return policyErrorOf("unsupported_verb", "op: `%v` is not supported by policy `%s`", v, policy)
}

// learn keeps what a decision of the store says.
func (e *Engine) learn(q store.Question, a store.Answer) {
	switch q.Verb {
	case kernel.VerbCheck:
		e.remembered.Keep(q.Key, q.Plan, q.Cost, q.Now, a)
	case kernel.VerbRefund, kernel.VerbReset, kernel.VerbRelease, kernel.VerbRenew:
		e.remembered.Drop(q.Key)
	}
	if e.redis != nil {
		e.share.Learn(q.Key, q.Plan, a, q.Now)
	}
}

// decideOwing asks the store, and has it charge what is owed for the key before.
func (e *Engine) decideOwing(ctx context.Context, q store.Question) (store.Answer, *wire.Failure) {
	for range questionsMax {
		b, alone := e.share.DebtFor(q.Key, q.Plan, q.Now)
		if b == nil {
			return e.store.Decide(ctx, q)
		}
		sent := q
		if sent.Debt = b; alone {
			sent.Request = kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: q.Now, Windows: q.Windows}
		}
		a, f := e.store.Decide(ctx, sent)
		owes := e.share.Settle(q.Key, b, q.Plan, a, f, q.Now)
		switch {
		case f != nil && alone:
			return a, &wire.Failure{Class: f.Class, Cause: f.Cause}
		case f != nil:
			return a, f
		case alone || owes && a.Allowed && takes(q.Verb):
			continue
		}
		return a, nil
	}
	return store.Answer{}, &wire.Failure{Class: wire.ClassContended, Charged: true, Cause: store.ErrContended}
}

// count reports the result of a question to the breaker, and keeps it for Health.
func (e *Engine) count(now int64, f *wire.Failure) {
	failed := f != nil && f.Class == wire.ClassNoAnswer
	if opened, _ := e.breaker.count(now, failed); opened {
		e.Logger.Debug("redis is not asked for a while")
	}
	switch {
	case failed:
		e.failing.Store(&failing{now, f})
	case f == nil:
		if e.failing.Load() != nil {
			e.failing.Store(nil)
		}
		if !e.Notices.Quiet() {
			e.Notices.Over("redis", "redis decides again", "address", e.Address())
		}
		// Some are decided in time also while others are not.
		if shed := e.shed.Load(); shed != nil && now-shed.now >= shedFor.Microseconds() && e.shed.CompareAndSwap(shed, nil) {
			e.Notices.Over("busy", "redis decides in time again", "address", e.Address())
		}
	}
}

func takes(v kernel.Verb) bool {
	return v == kernel.VerbCheck || v == kernel.VerbReserve || v == kernel.VerbAtMost || v == kernel.VerbAcquire
}

// without decides a request that the store left without a decision.
func (e *Engine) without(p *policy.Policy, q store.Question, f *wire.Failure) (store.Answer, Mode, error) {
	if f.Cause == wire.ErrUnsupported {
		return store.Answer{}, "", Unsupported(q.Verb, p.Name)
	}
	if f.Class == wire.ClassCaller || !takes(q.Verb) && q.Verb != kernel.VerbPeek {
		return store.Answer{}, "", f
	}
	if f.Class == wire.ClassContended || f.Class == wire.ClassOverloaded {
		e.shed.Store(&failing{q.Now, f})
		e.warn(p, f, ModeShed)
		return store.RefusedFor(q.Plan, shedRetryUS), ModeShed, nil
	}
	switch {
	case p.OnFailure == policy.FailAllow:
		if q.Verb != kernel.VerbPeek && q.Verb != kernel.VerbAcquire {
			e.share.Admit(q)
		}
		e.warn(p, f, ModeAllow)
		return store.Answer{Verdict: kernel.Verdict{Allowed: true, Granted: q.Cost}, Set: q.Plan.Set}, ModeAllow, nil
	case p.OnFailure == policy.FailDeny || f.Class == wire.ClassThisKey:
		e.warn(p, f, ModeDeny)
		return store.RefusedFor(q.Plan, denyRetryUS), ModeDeny, nil
	default:
		e.warn(p, f, ModeLocal)
		return e.share.Decide(q, e.nodes()), ModeLocal, nil
	}
}

// warn logs that Redis left a request without a decision, and what decides in its place.
func (e *Engine) warn(p *policy.Policy, f *wire.Failure, by Mode) {
	if f == notSent { // the question that it follows from was logged
		return
	}
	scope, message := "redis", "redis does not answer"
	switch f.Class {
	case wire.ClassThisKey:
		scope, message = "key", "redis cannot decide a key"
	case wire.ClassContended, wire.ClassOverloaded:
		scope, message = "busy", "redis does not decide in time"
	case wire.ClassNoAnswer:
		switch {
		case wire.ErrorName(f.Cause) != "":
			message = "redis answers with an error"
		case wire.NotRedis(f.Cause):
			message = "what answers is not redis"
		}
	}
	meanwhile := "requests are refused"
	switch by {
	case ModeAllow:
		meanwhile = "requests pass"
	case ModeLocal:
		meanwhile = fmt.Sprintf("this process decides by its share, 1/%d of each limit", e.nodes())
	}
	e.Notices.Warn(scope, notice.KindOf(f.Cause)+" "+string(by), message, "address", e.Address(), "error", lex.Cut(f.Cause.Error()),
		"policy", p.Name, "mode", string(by), "meanwhile", meanwhile)
}

// run pays debts and makes room until the context ends.
func (e *Engine) run(ctx context.Context) {
	ticker := time.NewTicker(payEvery)
	defer ticker.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		e.pay(ctx)
		if time.Since(swept) >= SweepEvery {
			e.Sweep(e.nowUS())
			swept = time.Now()
		}
	}
}

// Sweep makes room for more keys.
func (e *Engine) Sweep(nowUS int64) { e.share.Sweep(nowUS) }

// Owes reports whether something is to be charged that was admitted without Redis.
func (e *Engine) Owes() bool { return len(e.share.Debtors(1)) > 0 }

// pay has the store charge what is owed for some keys, by peeks; and goes on while debts get fewer.
func (e *Engine) pay(ctx context.Context) {
	for before := 0; ; {
		debtors := e.share.Debtors(payKeysMax)
		if len(debtors) == 0 || len(debtors) == before {
			return
		}
		before = len(debtors)
		for key, pl := range debtors {
			// A policy that is gone takes its debts along. One of a later version is still there: its budget is charged.
			if p, unreadable := e.Policies.Get(pl.Policy); p == nil && unreadable == "" && pl.RulesKey != "" {
				e.share.Forget(key)
				continue
			}
			now := e.nowUS()
			if !e.breaker.allows(now) {
				return
			}
			q := store.Question{Plan: pl, Key: key, Request: kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: now, Windows: pl.Windows(now)}}
			b, _ := e.share.DebtFor(key, pl, now)
			if b == nil {
				continue
			}
			q.Debt = b
			a, f := e.store.Decide(ctx, q)
			e.share.Settle(key, b, pl, a, f, now)
			if f != nil && f.Class == wire.ClassCaller {
				return
			}
			e.count(now, f)
			if f != nil {
				return
			}
			e.learn(q, a)
		}
	}
}

// Close stops following, and pays for a second at most what is owed.
func (e *Engine) Close() error {
	if e.stop != nil {
		e.stop()
	}
	e.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), payLastWithin)
	defer cancel()
	if e.followed != nil {
		select {
		case <-e.followed:
		case <-time.After(followedWithin): // a read from a Redis that hangs, which ends by itself
		}
	}
	for e.Owes() && ctx.Err() == nil {
		e.pay(ctx)
		_ = wire.Sleep(ctx, payLastEvery)
	}
	return nil
}
