package sluicegate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/unanswered"
	"github.com/sluicegate/sluicegate/sdk/go/internal/unnamed"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// keyMax is the longest key, and the longest id of a permit, in bytes.
const keyMax = 1024

// Limiter decides requests by one policy, or by one limit made in code. It is safe for concurrent use.
//
// A key selects the budget of a request: 1 to 1,024 bytes, compared byte for byte. A cost is 1 to 2^31 permits. The zero value
// is not usable: [Gate.Policy] and [Gate.Limit] make limiters.
//
// While Redis does not answer, a gate of [Direct] decides as the policy has it. A policy that it has never read is an
// ErrNotCharged then, as it is not known how to decide.
type Limiter struct {
	gate   *Gate
	name   string
	fixed  *policy.Policy // of a limit made in code
	shared bool
}

// FailureMode is the way to decide while Redis does not answer.
type FailureMode int

// The failure modes.
const (
	// FailLocal decides by this process' share of the limit.
	FailLocal FailureMode = iota
	// FailAllow lets requests pass, and charges them when Redis is back.
	FailAllow
	// FailDeny refuses requests.
	FailDeny
)

// String returns the name.
func (m FailureMode) String() string { return nameOf(int(m), "local", "allow", "deny") }

// OnStoreFailure returns a limiter of the same limit with another failure mode; the default is FailLocal. It is for limits
// made in code: the limiter of a policy gets an ErrRules, because the policy sets its mode itself.
func (l *Limiter) OnStoreFailure(mode FailureMode) (*Limiter, error) {
	switch {
	case l.fixed == nil:
		return nil, newError(ErrRules, nil, "rules: policy `%s` sets on_store_failure itself", lex.Short(l.name))
	case mode < FailLocal || mode > FailDeny:
		return nil, newError(ErrRules, nil, "rules: on_store_failure: `%v` is not a failure mode", mode)
	}
	fixed := *l.fixed
	fixed.OnFailure = policy.FailureMode(mode)
	return &Limiter{l.gate, l.name, &fixed, l.shared}, nil
}

// Shared returns the limiter of the budget that all callers without a key share. Its key is ""; any other is an ErrKeyLength.
func (l *Limiter) Shared() *Limiter { return &Limiter{l.gate, l.name, l.fixed, true} }

// Name returns the name of the policy or limit.
func (l *Limiter) Name() string { return l.name }

// Allow takes one permit now. See AllowN.
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN takes n permits now. An allowed request goes on after [Decision.Sleep], as some rules delay it. A refusal is a
// Decision, too; an error means that there is none.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbCheck, Key: key, Cost: n})
}

// AllowAtMost takes as many permits as are left, up to n. Decision.Granted is their number.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbAtMost, Key: key, Cost: n})
}

// Peek returns what AllowN would, and changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbPeek, Key: key, Cost: n})
}

// Reserve takes n permits within maxWait, 0 to 2^53 - 1 µs. If they are granted, call [Decision.Sleep]
// before you go on; that time is booked. Rules that cannot book the future answer as to AllowN.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, maxWait time.Duration) (Decision, error) {
	if err := validateWait(maxWait); err != nil {
		return Decision{}, err
	}
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbReserve, Key: key, Cost: n, MaxWait: maxWait.Microseconds()})
}

// Refund gives n permits back, the newest first and never above full. Decision.Granted is the number that was taken back.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbRefund, Key: key, Cost: n})
}

// Reset forgets the key: its budget is full again.
func (l *Limiter) Reset(ctx context.Context, key string) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbReset, Key: key, Cost: 1})
}

// Wait takes one permit and waits for it until the context ends. See WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN takes n permits, and waits for them. It returns a *LimitedError at once if they cannot come before the context's
// deadline, or never; an error of AllowN if there is no decision; and the error of the context if that ends while it waits.
// Permits that it booked are given back then; if that fails, errors.Is finds the error of the refund as well.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	for {
		left := kernel.Span(kernel.SpanMaxUS)
		if deadline, ok := ctx.Deadline(); ok {
			left = max(time.Until(deadline), 0)
		}
		d, err := l.Reserve(ctx, key, n, left)
		if err != nil {
			return err
		}
		pause := d.Pause()
		if !d.Allowed {
			if !d.CanRetry || d.RetryAfter > left {
				return d.Err()
			}
			pause = d.RetryAfter
		}
		err = l.gate.clock.Sleep(ctx, pause)
		if err != nil && d.Allowed {
			// The context has ended, so the refund has a time of its own.
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadlineRemoteDefault)
			_, refused := l.Refund(back, key, n)
			cancel()
			return errors.Join(err, refused)
		}
		if err != nil || d.Allowed {
			return err
		}
	}
}

// decideObserved decides a request of this limiter, and reports its outcome.
func (l *Limiter) decideObserved(ctx context.Context, request engine.Request) (Decision, error) {
	if l.gate.observers == nil {
		d, err := l.decide(ctx, request)
		l.gate.recordOutcome(ctx, l.name, d.Mode, err)
		return d, err
	}
	started := time.Now()
	d, err := l.decide(ctx, request)
	l.gate.reportOutcome(ctx, l.name, request.Verb.String(), d, err, started)
	return d, err
}

// validateWait returns an error if a longest wait is out of range.
func validateWait(maxWait time.Duration) error {
	if maxWait < 0 || maxWait.Microseconds() > kernel.SpanMaxUS {
		return newError(ErrMaxWaitRange, nil, "max_wait: `%d` is outside 0..=9007199254740991 us", maxWait.Microseconds())
	}
	return nil
}

// validate returns an error if a key or a cost is out of range.
func (l *Limiter) validate(key string, cost int64) error {
	switch {
	case key == "" && !l.shared:
		return newError(ErrKeyEmpty, nil, "key: is empty, expected 1..=1024 bytes; omit it for the shared budget")
	case key != "" && l.shared:
		return newError(ErrKeyLength, nil, "key: `%d` bytes, expected none for the shared budget", len(key))
	case len(key) > keyMax:
		return newError(ErrKeyLength, nil, "key: `%d` bytes are outside 1..=1024", len(key))
	case cost < 1 || cost > CostMax:
		return newError(ErrCostRange, nil, "cost: `%d` is outside 1..=2147483648", cost)
	}
	return nil
}

// decide validates a request, and decides it.
func (l *Limiter) decide(ctx context.Context, request engine.Request) (Decision, error) {
	if err := l.validate(request.Key, request.Cost); err != nil {
		return Decision{}, err
	}
	isOfPermit := request.Verb == kernel.VerbAcquire || request.Verb == kernel.VerbRelease || request.Verb == kernel.VerbRenew
	if isOfPermit && (len(request.ID) < 1 || len(request.ID) > keyMax) {
		return Decision{}, newError(ErrIDLength, nil, "id: `%d` bytes are outside 1..=1024", len(request.ID))
	}
	request.Policy, request.Fixed = l.name, l.fixed
	d, err := l.gate.decider.decide(ctx, request)
	d.clock = l.gate.ownClock
	return d, err
}

// Permit is a permit of a `concurrency` rule that is held. Release it; one that is neither released nor renewed lapses
// after the rule's ttl. One that passed over the limit (`overflow: shadow`, see Decision.Overflow) holds nothing:
// Release, Renew and Hold succeed without a call. A Permit is safe for concurrent use. The zero value is not usable:
// [Limiter.Acquire] and [Limiter.AcquireN] make permits.
type Permit struct {
	// ID is the name by which the permit is held.
	ID string
	// Decision is the answer that granted it.
	Decision Decision

	limiter     *Limiter
	key         string
	requestedAt time.Time // when the permit was acquired

	mu       sync.Mutex
	ended    bool            // Release was called
	released bool            // and succeeded
	held     context.Context // of Hold; nil before
	end      context.CancelCauseFunc
	renewals chan struct{} // closed when there are no more; nil: there are none
}

// Acquire holds one permit, under a random id. A refusal is a *LimitedError. Over the limit, a policy
// with `overflow: shadow` returns a permit that holds nothing; one that degrades or diverts refuses, and
// LimitedError.Decision.Overflow has what to do instead. If there is no answer, Acquire releases the id, as the permit is perhaps held.
//
// A server holds an Acquire of a policy with `overflow: queue` back, for the max_wait of the policy. [Deadline] is to be longer than
// that: otherwise requests that wait end without an answer. [Limiter.AcquireWithin] sets its own wait.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Permit, error) {
	return l.acquireUnnamed(ctx, engine.Request{Key: key, Cost: 1})
}

// AcquireN holds n permits under an id of 1 to 1,024 bytes. An id that is held already is refused, and CanRetry is false.
// If there is no answer, release the id: the permits are perhaps held.
func (l *Limiter) AcquireN(ctx context.Context, key, id string, n int64) (*Permit, error) {
	return l.acquire(ctx, engine.Request{Key: key, Cost: n, ID: id})
}

// AcquireWithin holds one permit, under a random id, and waits for it: maxWait at most, 0 to 2^53 - 1 µs in whole milliseconds, and no
// longer than the context. It needs a `queue` in the policy's `concurrency` rule, and Redis or a server. Requests get permits in the order
// in which they came, across servers and programs. What is not granted in time is refused, as by Acquire; `overflow: queue` of the policy has no
// effect. Without a `queue` in the policy it returns an ErrUnsupportedVerb, and in a gate of [InMemory] an ErrNotInDirectMode.
//
// A request to a server may take [Deadline] and maxWait together. If the context ends meanwhile, or there is no answer, AcquireWithin releases the id, for
// Deadline at most, before it returns, and half a second later again if it was not held: a permit that was granted at that moment is free again.
//
// Over HTTP, a client of [HTTPClient] must have no Timeout of its own. Over RESP, a context that ends is noticed by the server after
// 100 ms, for which AcquireWithin waits, 250 ms at most. Requests that may wait have connections of their own there, 64
// at most; further ones wait for one of these inside the program, so that other requests never wait behind them.
//
// A gate of [Direct] holds up to 10,000 requests back at a time, and asks Redis by its own connections: when a request begins to wait, when
// it is called, and once a second for each key. While Redis does not answer, requests wait for permits of this process' share.
func (l *Limiter) AcquireWithin(ctx context.Context, key string, maxWait time.Duration) (*Permit, error) {
	if err := validateWait(maxWait); err != nil {
		return nil, err
	}
	return l.acquireUnnamed(ctx, engine.Request{Key: key, Cost: 1, MaxWait: maxWait.Microseconds(), Waits: true})
}

// AcquireNWithin holds n permits under an id of 1 to 1,024 bytes, and waits for them like AcquireWithin. If there is no answer, or the context
// ends, release the id, with a context that has not ended: the permits are perhaps held. If they were not, release it half a second later
// again: the server may have granted them before it noticed that the caller is gone.
func (l *Limiter) AcquireNWithin(ctx context.Context, key, id string, n int64, maxWait time.Duration) (*Permit, error) {
	if err := validateWait(maxWait); err != nil {
		return nil, err
	}
	return l.acquire(ctx, engine.Request{Key: key, Cost: n, ID: id, MaxWait: maxWait.Microseconds(), Waits: true})
}

func init() {
	unnamed.Acquire = func(ctx context.Context, limiter any, key string, n int64, maxWait time.Duration) (any, error) {
		request := engine.Request{Key: key, Cost: n}
		if maxWait != unnamed.NoWait {
			if err := validateWait(maxWait); err != nil {
				return nil, err
			}
			request.MaxWait, request.Waits = maxWait.Microseconds(), true
		}
		return limiter.(*Limiter).acquireUnnamed(ctx, request)
	}
}

// acquireUnnamed acquires under a random id, and releases that if there is no answer, or none of Redis in time: nobody else knows it.
func (l *Limiter) acquireUnnamed(ctx context.Context, request engine.Request) (*Permit, error) {
	request.ID, request.IsUnnamed = wire.NewID(), true
	permit, err := l.acquire(ctx, request)
	var refused *LimitedError
	switch {
	case perhapsCharged(err):
		unanswered.Release(ctx, func(ctx context.Context) (bool, error) {
			d, err := l.Release(ctx, request.Key, request.ID)
			return d.Allowed || l.gate.inCode, err // only a server grants later what it held back
		})
	case errors.As(err, &refused) && refused.Decision.withoutRedis():
		l.releaseLater(ctx, request.Key, request.ID)
	}
	return permit, err
}

// releaseLater releases in the background a permit that Redis may have granted too late for its answer.
func (l *Limiter) releaseLater(ctx context.Context, key, id string) {
	if _, scripted := l.gate.decider.(byFunc); scripted {
		return // it answers the calls of a test, in their order
	}
	unanswered.Later(ctx, func(ctx context.Context) (bool, error) {
		d, err := l.Release(ctx, key, id)
		return d.Allowed, err
	})
}

// acquire acquires under the id of a request.
func (l *Limiter) acquire(ctx context.Context, request engine.Request) (*Permit, error) {
	requestedAt := l.gate.clock.Now()
	request.Verb = kernel.VerbAcquire
	d, err := l.decideObserved(ctx, request)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return nil, err
	}
	return &Permit{ID: request.ID, Decision: d, limiter: l, key: request.Key, requestedAt: requestedAt}, nil
}

// Release gives back the permits that are held under an id. They were not held any more if the decision refuses, or,
// under `overflow: shadow`, if its Overflow has the kind shadow.
func (l *Limiter) Release(ctx context.Context, key, id string) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbRelease, Key: key, Cost: 1, ID: id})
}

// Renew holds the permits of an id for another ttl. They were not held any more if the decision refuses, or, under
// `overflow: shadow`, if its Overflow has the kind shadow.
func (l *Limiter) Renew(ctx context.Context, key, id string) (Decision, error) {
	return l.decideObserved(ctx, engine.Request{Verb: kernel.VerbRenew, Key: key, Cost: 1, ID: id})
}

// holdsNothing reports whether the permit passed over the limit.
func (p *Permit) holdsNothing() bool { return p.Decision.Overflow.Kind == OverflowShadow }

// Release gives the permit back, and ends Hold. An error means that it is not known to be given back: you may call Release
// again. After a success it does nothing. It returns nil also if the permit had lapsed before; Hold and Renew report that.
func (p *Permit) Release(ctx context.Context) error {
	p.mu.Lock()
	released := p.released
	p.ended = true
	if p.end != nil {
		p.end(context.Canceled)
	}
	renewals := p.renewals
	p.mu.Unlock()
	if renewals != nil {
		<-renewals
	}
	if released || p.holdsNothing() {
		return nil
	}
	d, err := p.limiter.Release(ctx, p.key, p.ID)
	if err == nil && d.Mode == ModeLocal {
		p.limiter.releaseLater(ctx, p.key, p.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = p.released || err == nil
	return err
}

// Renew holds the permit for another ttl. An ErrNotHeld means that it is not held any more.
func (p *Permit) Renew(ctx context.Context) error {
	if p.holdsNothing() {
		return nil
	}
	d, err := p.limiter.Renew(ctx, p.key, p.ID)
	if err == nil && !d.Allowed {
		return ErrNotHeld
	}
	return err
}

// Hold renews the permit in the background, each time a third of its ttl has passed, until it is released or ctx ends. Do
// the work that needs the permit with the context that Hold returns: it is derived from ctx, and ends when the permit is
// released, or lost. Its context.Cause is [ErrNotHeld] if a renewal was refused, or if none succeeded for a ttl: then others
// may hold the permit. Hold called again returns the same context; called after Release, one that has ended.
func (p *Permit) Hold(ctx context.Context) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		return p.held
	}
	p.held, p.end = context.WithCancelCause(ctx)
	_, scripted := p.limiter.gate.decider.(byFunc)
	switch {
	case p.ended:
		p.end(ErrNotHeld)
	case p.Decision.ResetAfter > 0 && !p.holdsNothing() && !scripted:
		p.renewals = make(chan struct{})
		go p.renewUntilLost(p.Decision.ResetAfter)
	}
	return p.held
}

// renewUntilLost renews the permit until the context of Hold ends, and ends that itself once the permit is lost.
func (p *Permit) renewUntilLost(ttl time.Duration) {
	defer close(p.renewals)
	clock, renewed := p.limiter.gate.clock, p.requestedAt
	for wait := ttl/3 - clock.Now().Sub(renewed); clock.Sleep(p.held, wait) == nil; wait = ttl / 3 {
		requestedAt := clock.Now()
		switch err := p.Renew(p.held); {
		case err == nil:
			renewed = requestedAt
		case errors.Is(err, ErrNotHeld) || clock.Now().Sub(renewed) >= ttl:
			p.end(ErrNotHeld)
			return
		}
	}
}
