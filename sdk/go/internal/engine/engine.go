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
	// storeRequestsMax is how many requests to the store a decision takes at most while something is owed.
	storeRequestsMax = 4
	// payEvery is how often debts of keys are paid that have no requests.
	payEvery = 100 * time.Millisecond
	// payKeysMax is how many keys are paid for at a time: few beside the requests of others.
	payKeysMax = 64
	// payLastWithin bounds how long a process that stops pays what it owes.
	payLastWithin = time.Second
	payLastEvery  = 10 * time.Millisecond
	// followerStopWithin is how long an end waits for the last look and for the connection that messages come by.
	followerStopWithin = 100 * time.Millisecond
	SweepEvery         = time.Second
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

// clock is the time by which an engine works.
type clock interface {
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
	waiters    *waiters
	failing    atomic.Pointer[failedRequest] // nil: the last request was answered
	shed       atomic.Pointer[failedRequest] // the last that was answered too late, beside others; nil: none for a while

	stop     context.CancelFunc
	done     sync.WaitGroup
	followed chan struct{} // closed when policies are not followed any more
}

// Config is what an engine is made of.
type Config struct {
	Redis    redis.UniversalClient // nil: the engine decides in memory
	Policies *policy.Catalog
	App      string
	Nodes    int64         // 0: as the servers publish
	Deadline time.Duration // of a request to Redis
	NoWarmUp bool          // nothing is done ahead, nor does a request take longer at the start
	Clock    clock
	Logger   *slog.Logger
	Notices  *notice.Log
}

// New returns an engine that does nothing by itself yet.
func New(c Config) *Engine {
	e := &Engine{Config: c, store: store.NewMemory(), share: store.NewShare(), waiters: newWaiters()}
	if c.Redis != nil {
		conn := wire.Conn{Client: c.Redis}
		e.redis = store.NewRedis(conn, c.Deadline, c.Clock.Now, c.Policies.ClockNow)
		e.store, e.follower = e.redis, policy.NewFollower(c.Policies, conn)
		e.follower.Notices, e.follower.OnLook = c.Notices, e.redis.Looked
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
	if e.Look(ctx) && !e.NoWarmUp {
		e.redis.Begin()
		e.redis.WarmUp(ctx)
		e.redis.Begin() // the seconds of the requests, which follow now
	}
	e.followed = make(chan struct{})
	go func() { defer close(e.followed); e.follower.Run(ctx) }()
	e.done.Add(1)
	go func() { defer e.done.Done(); e.run(ctx) }()
	go e.passCalls(ctx) // a subscription may take a moment to end
}

// Request is a request of a caller, whose values were checked.
type Request struct {
	Policy  string
	Fixed   *policy.Policy // of a limit made in code; nil: the policy is that of the name
	Key     string
	Verb    kernel.Verb
	Cost    int64
	MaxWait int64  // of a reserve, and of an acquire that Waits, in µs
	ID      string // of a permit
	Waits   bool   // an acquire sets its own longest wait for a permit
	// IsUnnamed reports whether nobody else knows the ID of an acquire.
	IsUnnamed bool

	permit kernel.PermitID // of an ID that is not known any more
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
	Rules  *wire.CompiledRules
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

// policyFor finds the policy of a request, or returns why it may not be used.
func (e *Engine) policyFor(ctx context.Context, request Request) (*policy.Policy, error) {
	if request.Fixed != nil {
		return request.Fixed, nil
	}
	name := request.Policy
	p, reason := e.Policies.Get(name)
	if p == nil && e.follower != nil {
		if err := e.follower.LookFor(ctx, e.redis.DeadlineNow()); err != nil {
			e.redis.Connect(policy.PoliciesKey)
			return nil, &wire.Failure{Class: wire.ClassNoAnswer, Cause: e.redis.Cause(err, false)}
		}
		p, reason = e.Policies.Get(name)
	}
	switch {
	case p == nil:
		return nil, e.missing(name, reason)
	case p.Allows(e.App, request.Verb):
		return p, nil
	case e.App == "":
		return nil, policyErrorOf("app_missing", "app: policy `%s` is not available to a caller without an app", name)
	default:
		return nil, policyErrorOf("policy_not_available", "app: policy `%s` is not available to app `%s`", name, e.App)
	}
}

// missing returns the error of a policy that is not held; reason is why it cannot be read.
func (e *Engine) missing(name, reason string) error {
	policyCount, found := e.Policies.State()
	if reason == "" && policyCount == 0 && found == policy.FoundFormat {
		reason = policy.ErrFormat.Error()
	}
	switch {
	case reason != "":
		return policyErrorOf("unreadable_policy", "policy: `%s` cannot be read: %s", name, lex.Truncate(reason))
	case policyCount == 0 && found == policy.FoundNothing:
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
func (e *Engine) Decide(ctx context.Context, request Request) (Outcome, error) {
	p, err := e.policyFor(ctx, request)
	if err != nil {
		return Outcome{}, err
	}
	if p.Overflow.Kind == "queue" && request.Verb == kernel.VerbCheck {
		return e.decideQueued(ctx, p, request)
	}
	if request.Waits {
		return e.decideWaiting(ctx, p, request)
	}
	return e.decideNow(ctx, p, request)
}

// decideNow decides a request, without holding it back.
func (e *Engine) decideNow(ctx context.Context, p *policy.Policy, request Request) (Outcome, error) {
	rules := p.RulesFor(request.Key, e.nowUS())
	answer, mode, err := e.decideInOrder(ctx, p, rules, request)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Answer: answer, Policy: p, Rules: rules, Verb: request.Verb, Mode: mode}, nil
}

// decideInOrder goes through everything that may decide, in order.
func (e *Engine) decideInOrder(ctx context.Context, p *policy.Policy, rules *wire.CompiledRules, request Request) (store.Answer, Mode, error) {
	now := e.nowUS()
	if !rules.Set.Supports(request.Verb) {
		return store.Answer{}, "", Unsupported(request.Verb, p.Name)
	}
	place := wire.PlaceOf(rules.Policy, request.Key)
	if request.Verb == kernel.VerbCheck {
		if got, ok := e.remembered.Find(place, rules, request.Cost, now); ok {
			return got, ModeRemembered, nil
		}
	}
	req := store.Request{Rules: rules, Key: string(place[:]), Request: kernel.Request{
		Verb: request.Verb, Cost: request.Cost, MaxWait: request.MaxWait, Now: now, Windows: rules.Windows(now),
	}}
	if req.Permit = request.permit; req.Permit == (kernel.PermitID{}) && request.ID != "" {
		req.Permit = kernel.PermitOf(request.ID)
	}
	if request.Verb == kernel.VerbWait || request.Verb == kernel.VerbLeave {
		req.Process = e.waiters.process
	}
	if request.Verb == kernel.VerbRelease || request.Verb == kernel.VerbRenew {
		if got, ok := e.share.OnPermit(req); ok {
			return got, ModeLocal, nil
		}
	}
	f := errBreakerOpen
	if e.breaker.allows(now) {
		var got store.Answer
		if got, f = e.ask(ctx, req); f == nil {
			return got, ModeStore, nil
		}
	}
	if (request.Verb == kernel.VerbRefund || request.Verb == kernel.VerbReset) && f.Class != wire.ClassCaller {
		e.remembered.Drop(req.Key)
	}
	return e.decideWithoutStore(p, req, f)
}

// ask has the store decide a request. Until it has, the share counts the permits as ones that Redis may grant.
func (e *Engine) ask(ctx context.Context, req store.Request) (store.Answer, *wire.Failure) {
	if takesPermits(req.Verb) {
		e.share.Ask(req.Key, req.Cost)
		defer e.share.Asked(req.Key, req.Cost)
	}
	got, f := e.decideWithDebt(ctx, req)
	if f == nil || f.Class != wire.ClassCaller || f.Cause == wire.ErrUnsupported {
		e.countResult(req.Now, f)
	}
	if f == nil {
		e.learn(req, got)
	}
	return got, f
}

// errBreakerOpen is the failure of a request while the breaker is open.
var errBreakerOpen = &wire.Failure{Class: wire.ClassNoAnswer, Cause: errors.New("redis did not decide before, and is not asked now")}

// Unsupported returns the error of a verb that the rules of a policy do not have.
func Unsupported(v kernel.Verb, policy string) error {
	return policyErrorOf("unsupported_verb", "op: `%v` is not supported by policy `%s`", v, policy)
}

// learn keeps what a decision of the store reports.
func (e *Engine) learn(req store.Request, answer store.Answer) {
	switch req.Verb {
	case kernel.VerbCheck:
		e.remembered.Keep(req.Key, req.Rules, req.Cost, req.Now, answer)
	case kernel.VerbRefund, kernel.VerbReset, kernel.VerbRelease, kernel.VerbRenew:
		e.remembered.Drop(req.Key)
	}
	e.callWaiters(req.Key, req.Verb, answer.Verdict, answer.Called)
	if e.redis != nil {
		e.share.Learn(req.Key, req.Rules, answer, req.Now)
	}
}

// decideWithDebt decides by the store, which charges what is owed for the key before.
func (e *Engine) decideWithDebt(ctx context.Context, req store.Request) (store.Answer, *wire.Failure) {
	for range storeRequestsMax {
		debt, alone := e.share.DebtFor(req.Key, req.Rules, req.Now)
		if debt == nil {
			return e.store.Decide(ctx, req)
		}
		sent := req
		if sent.Debt = debt; alone {
			sent.Request = kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: req.Now, Windows: req.Windows}
		}
		answer, f := e.store.Decide(ctx, sent)
		stillOwes := e.share.Settle(req.Key, debt, req.Rules, answer, f, req.Now)
		switch {
		case f != nil && alone:
			return answer, &wire.Failure{Class: f.Class, Cause: f.Cause}
		case f != nil:
			return answer, f
		case alone || stillOwes && answer.Allowed && takesPermits(req.Verb):
			continue
		}
		return answer, nil
	}
	return store.Answer{}, &wire.Failure{Class: wire.ClassContended, Charged: true, Cause: store.ErrContended}
}

// countResult reports the result of a request to the breaker, and keeps it for Health.
func (e *Engine) countResult(now int64, f *wire.Failure) {
	failed := f != nil && f.Class == wire.ClassNoAnswer
	if opened, _ := e.breaker.count(now, failed); opened {
		e.Logger.Debug("redis is not asked for a while")
	}
	switch {
	case failed:
		e.failing.Store(&failedRequest{now, f})
	case f == nil:
		if e.failing.Load() != nil {
			e.failing.Store(nil)
		}
		if !e.Notices.Quiet() {
			e.Notices.Recovered("redis", "redis decides again", "address", e.Address())
		}
		// Some are decided in time also while others are not.
		if shed := e.shed.Load(); shed != nil && now-shed.now >= shedLasts.Microseconds() && e.shed.CompareAndSwap(shed, nil) {
			e.Notices.Recovered("busy", "redis decides in time again", "address", e.Address())
		}
	}
}

func takesPermits(v kernel.Verb) bool {
	return v == kernel.VerbCheck || v == kernel.VerbReserve || v == kernel.VerbAtMost || v == kernel.VerbAcquire || v == kernel.VerbWait
}

// decideWithoutStore decides a request that the store left without a decision.
func (e *Engine) decideWithoutStore(p *policy.Policy, req store.Request, f *wire.Failure) (store.Answer, Mode, error) {
	if f.Cause == wire.ErrUnsupported {
		return store.Answer{}, "", Unsupported(req.Verb, p.Name)
	}
	if req.Verb == kernel.VerbWait {
		req.Verb = kernel.VerbAcquire // there are no tickets elsewhere
	}
	if f.Class == wire.ClassCaller || !takesPermits(req.Verb) && req.Verb != kernel.VerbPeek {
		return store.Answer{}, "", f
	}
	if f.Class == wire.ClassContended || f.Class == wire.ClassOverloaded {
		e.shed.Store(&failedRequest{req.Now, f})
		e.warn(p, f, ModeShed)
		return store.RefusedFor(req.Rules, shedRetryUS), ModeShed, nil
	}
	switch {
	case p.OnFailure == policy.FailAllow:
		if req.Verb != kernel.VerbPeek && req.Verb != kernel.VerbAcquire {
			e.share.Admit(req)
		}
		e.warn(p, f, ModeAllow)
		return store.Answer{Verdict: kernel.Verdict{Allowed: true, Granted: req.Cost}, Set: req.Rules.Set}, ModeAllow, nil
	case p.OnFailure == policy.FailDeny || f.Class == wire.ClassThisKey:
		e.warn(p, f, ModeDeny)
		return store.RefusedFor(req.Rules, denyRetryUS), ModeDeny, nil
	default:
		e.warn(p, f, ModeLocal)
		return e.share.Decide(req, e.nodes()), ModeLocal, nil
	}
}

// warn logs that Redis left a request without a decision, and what decides in its place.
func (e *Engine) warn(p *policy.Policy, f *wire.Failure, mode Mode) {
	if f == errBreakerOpen { // the request that it follows from was logged
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
	switch mode {
	case ModeAllow:
		meanwhile = "requests pass"
	case ModeLocal:
		meanwhile = fmt.Sprintf("this process decides by its share, 1/%d of each limit", e.nodes())
	}
	e.Notices.Warn(scope, notice.KindOf(f.Cause)+" "+string(mode), message, "address", e.Address(), "error", lex.Truncate(f.Cause.Error()),
		"policy", p.Name, "mode", string(mode), "meanwhile", meanwhile)
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
		for key, rules := range debtors {
			// A policy that is gone takes its debts along. One of a later version is still there: its budget is charged.
			if p, unreadable := e.Policies.Get(rules.Policy); p == nil && unreadable == "" && rules.RulesKey != "" {
				e.share.Forget(key)
				continue
			}
			now := e.nowUS()
			if !e.breaker.allows(now) {
				return
			}
			req := store.Request{Rules: rules, Key: key, Request: kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: now, Windows: rules.Windows(now)}}
			debt, _ := e.share.DebtFor(key, rules, now)
			if debt == nil {
				continue
			}
			req.Debt = debt
			answer, f := e.store.Decide(ctx, req)
			e.share.Settle(key, debt, rules, answer, f, now)
			if f != nil && f.Class == wire.ClassCaller {
				return
			}
			e.countResult(now, f)
			if f != nil {
				return
			}
			e.learn(req, answer)
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
		case <-time.After(followerStopWithin): // a read from a Redis that hangs, which ends by itself
		}
	}
	for e.Owes() && ctx.Err() == nil {
		e.pay(ctx)
		_ = wire.Sleep(ctx, payLastEvery)
	}
	return nil
}
