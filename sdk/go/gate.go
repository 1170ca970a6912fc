// Package sluicegate limits rates, by the policies of Sluicegate servers or by limits made in code:
//
//	gate, err := sluicegate.Direct(rdb, sluicegate.App("shop"))
//	...
//	d, err := gate.Policy("orders").Allow(ctx, userID)
//	if err != nil { return err }                          // no decision: an unknown policy, for example
//	if !d.Allowed { return d.Err() }                      // errors.Is(err, sluicegate.ErrLimited)
//	if err := d.Sleep(ctx); err != nil { return err }     // allowed, but not yet: a leaky bucket delays requests
//
// A [Gate] made by [Direct] decides in Redis itself and shares every budget with servers and other programs there; one
// made by [Remote] sends requests to a server; one made by [InMemory] decides in this process, for tests. All have the same methods.
//
// Policies with a `concurrency` rule limit how many requests are served at a time. A [Permit] is held meanwhile, and requests can
// wait for one:
//
//	permit, err := gate.Policy("pool").AcquireWithin(ctx, tenant, 2*time.Second)
//	if err != nil { return err }                          // errors.Is(err, sluicegate.ErrLimited): none was free in time
//	defer permit.Release(context.WithoutCancel(ctx))
//	return work(permit.Hold(ctx))
//
// The packages sghttp, sggin, sgecho and sggrpc have middlewares for both: of rates, and named Concurrency for permits.
package sluicegate

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// decider decides requests, whose values were checked.
type decider interface {
	decide(ctx context.Context, a engine.Request) (Decision, error)
	ping(ctx context.Context) error
	// endpoint returns what decides, redis or server, and its address; "" if this process decides alone.
	endpoint() (kind, address string)
	close() error
}

// Gate decides requests. It is safe for concurrent use. Call Close when you no longer need it. The zero value is not usable:
// [Direct], [Remote], [InMemory] and [ByFunc] make gates.
type Gate struct {
	decider   decider
	inCode    bool // limits can be made in code
	clock     Clock
	ownClock  Clock // the clock, if it is not the machine's: decisions sleep by it
	observers []func(context.Context, Observation)
	notices   *notice.Log
	needed    atomic.Bool                 // the program uses policies
	failing   atomic.Pointer[lastFailure] // nil: the server answered the last request, or there is none
}

// Direct returns a gate that decides in Redis, by the policies that servers publish there and by limits made in code. The
// client must have ContextTimeoutEnabled, because deadlines have no effect without it. Direct reads the policies before it
// returns, for one second at most, and warms up for half a second at most: see [NoWarmUp]. It returns a gate also while Redis
// does not answer, refuses the password, or has no policies. To fail then, call [Gate.Require].
func Direct(rdb redis.UniversalClient, opts ...Option) (*Gate, error) {
	o, err := optionsOf(forDirect, deadlineDefault, opts)
	if err != nil {
		return nil, err
	}
	switch timesOut, isNil := timesOut(rdb); {
	case isNil:
		return nil, fmt.Errorf("%w: the client is nil", ErrClient)
	case !timesOut:
		return nil, fmt.Errorf("%w: ContextTimeoutEnabled is not set; without it no deadline holds", ErrClient)
	}
	e := o.engineOf(rdb)
	e.Start()
	gate := o.gate(local{e})
	gate.needed.Store(len(o.names) > 0)
	return gate, nil
}

// engineOf makes an engine that decides in Redis.
func (o *options) engineOf(rdb redis.UniversalClient) *engine.Engine {
	return engine.New(engine.Config{
		Redis: rdb, Policies: policy.NewCatalog(o.names, o.clock.Now), App: o.app, Nodes: o.nodes, Deadline: o.deadline,
		NoWarmUp: o.cold, Clock: o.clock, Logger: o.logger, Notices: notice.New(o.logger, o.clock.Now),
	})
}

// timesOut reports whether commands of a client end with their context, and whether there is no client.
func timesOut(rdb redis.UniversalClient) (enabled, isNil bool) {
	switch client := rdb.(type) {
	case *redis.Client:
		return client != nil && client.Options().ContextTimeoutEnabled, client == nil
	case *redis.ClusterClient:
		return client != nil && client.Options().ContextTimeoutEnabled, client == nil
	case *redis.Ring:
		return client != nil && client.Options().ContextTimeoutEnabled, client == nil
	default:
		return true, rdb == nil
	}
}

// InMemory returns a gate that decides in the memory of this process, as [Direct] does without Redis (never more than a server,
// sometimes less or later), by the policies of [Compiled] and [Rules] and by limits made in code. For tests, and for limits
// that no other process shares.
func InMemory(opts ...Option) (*Gate, error) {
	o, err := optionsOf(forMemory, deadlineDefault, opts)
	if err != nil {
		return nil, err
	}
	catalog, instant := policy.NewCatalog(nil, o.clock.Now), wire.InstantOf(o.clock.Now())
	for _, file := range o.compiled {
		records, err := policy.ReadFile(file, instant)
		if err != nil {
			return nil, newError(ErrRules, err, "rules: %v", err)
		}
		for _, p := range records {
			catalog.Hold(p)
		}
	}
	for _, policyRules := range o.rules {
		set, err := kernel.Compile(policyRules.policy, specsOf(policyRules.rules), "")
		if err != nil {
			return nil, newError(ErrRules, err, "rules: policy `%s`: %v", lex.Short(policyRules.policy), err)
		}
		catalog.Hold(policy.FromRules(policyRules.policy, set, instant))
	}
	e := engine.New(engine.Config{Policies: catalog, App: o.app, Clock: o.clock, Logger: o.logger})
	return o.gate(local{e}), nil
}

// Policy returns the limiter of a policy. The policy need not exist yet.
func (g *Gate) Policy(name string) *Limiter {
	if !g.needed.Load() {
		g.needed.Store(true)
	}
	return &Limiter{gate: g, name: name}
}

// Limit returns a limiter of 1 to 8 rules made in code; several rules need a name each. Programs that use the same limit
// name share its budgets, which are those of no policy. The rules are stored with the budgets and nowhere else. A gate made
// by Remote returns an error.
func (g *Gate) Limit(name string, rules ...Rule) (*Limiter, error) {
	if !g.inCode {
		return nil, newError(ErrRules, nil, "rules: limits made in code are not available through a server")
	}
	set, err := kernel.Compile(name, specsOf(rules), wire.CallerRule)
	if err != nil {
		return nil, newError(ErrRules, err, "rules: %v", err)
	}
	return &Limiter{gate: g, name: name, fixed: &policy.Policy{Name: name, Rules: wire.NewLimitRules(name, set)}}, nil
}

// Ping sends Redis or the server `PING`, or `/readyz` over HTTP, and waits for one second at most. It returns an
// ErrNotCharged if there is no answer, and an ErrServer if the server is not ready. A gate in memory returns nil.
func (g *Gate) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	return g.decider.ping(ctx)
}

// pingError returns the error of a ping; nil if it was answered.
func pingError(err error, where string) error {
	if err == nil {
		return nil
	}
	return storeError(&wire.Failure{Class: wire.ClassNoAnswer, Cause: err}, where)
}

// Close stops the background work of the gate and, for one second at most, charges in Redis what was admitted without it.
// It does not close the Redis client. Close may be called again. Send no requests afterwards: a gate of Remote over RESP has
// no connections any more, and one of Direct no longer follows policies, nor charges what it admits without Redis.
func (g *Gate) Close() error { return g.decider.close() }

// local is a gate that decides in this process: in Redis, or in memory.
type local struct{ engine *engine.Engine }

func (l local) decide(ctx context.Context, request engine.Request) (Decision, error) {
	if request.Waits && l.engine.Redis == nil {
		return Decision{}, newError(ErrNotInDirectMode, nil, "op: `%v` that waits for a permit is not available in memory; ask a server", request.Verb)
	}
	got, err := l.engine.Decide(ctx, request)
	if err != nil {
		return Decision{}, errorOf(err, describeEndpoint(l))
	}
	return decisionOf(got), nil
}

func (l local) endpoint() (kind, address string) {
	if l.engine.Redis == nil {
		return "", ""
	}
	return "redis", l.engine.Address()
}

func (l local) ping(ctx context.Context) error {
	if l.engine.Redis == nil {
		return nil
	}
	return pingError(l.engine.Redis.Ping(ctx).Err(), describeEndpoint(l))
}

func (l local) close() error { return l.engine.Close() }

// describeEndpoint returns what decides, and where, for messages.
func describeEndpoint(d decider) string {
	kind, address := d.endpoint()
	if address == "" {
		return kind
	}
	return kind + " at " + address
}

// decisionOf returns the decision that an outcome is to the caller.
func decisionOf(outcome engine.Outcome) Decision {
	d := Decision{
		Allowed: outcome.Allowed, Granted: outcome.Granted, Wait: kernel.Span(outcome.Wait), Limit: outcome.Limit(),
		Remaining: outcome.Remaining, ResetAfter: kernel.Span(outcome.ResetAfter), Policy: outcome.Policy.Name, Mode: Mode(outcome.Mode), Held: kernel.Span(outcome.HeldUS),
		Rule: outcome.Rules.OwnRuleName(outcome.Set, outcome.Rule), Quotas: outcome.Rules.Derived(quotasOf).([]Quota),
	}
	if !outcome.Allowed && outcome.Retry != kernel.Never {
		d.CanRetry, d.RetryAfter = true, kernel.Span(outcome.Retry)
	}
	over := outcome.Policy.Overflow
	if outcome.Allowed || !over.Covers(outcome.Verb) {
		return d
	}
	switch over.Kind {
	case "shadow":
		d.Allowed, d.Overflow.Kind = true, OverflowShadow
	case "degrade":
		d.Overflow = Overflow{Kind: OverflowDegrade, Tag: over.Tag, Response: (*Response)(over.Response)}
	case "divert":
		d.Overflow = Overflow{Kind: OverflowDivert, Target: over.Target}
	}
	return d
}

func quotasOf(p *wire.CompiledRules) any {
	var out []Quota
	for _, r := range p.Set.Rules {
		out = append(out, Quota{r.Name, r.Limit(), kernel.Span(r.WindowUS), r.Code == kernel.CodeConcurrency})
	}
	return out
}
