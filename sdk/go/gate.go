// Package sluicegate limits rates: with the policies of Sluicegate servers, or with limits made in code.
//
// A [Gate] made by [Direct] decides in Redis itself and shares every budget with servers and other programs there; one
// made by [Remote] asks a server; one made by [InMemory] decides in this process, for tests. All have the same methods.
//
//	gate, err := sluicegate.Direct(rdb, sluicegate.App("shop"))
//	...
//	d, err := gate.Policy("orders").Allow(ctx, userID)
//	if err != nil { return err }         // no decision: an unknown policy, for example
//	if !d.Allowed { return d.Err() }     // errors.Is(err, sluicegate.ErrLimited)
package sluicegate

import (
	"context"
	"errors"
	"maps"

	"github.com/redis/go-redis/v9"
)

// decider decides requests whose values were checked.
type decider interface {
	decide(ctx context.Context, a ask, id string) (Decision, error)
	close() error
}

// Gate decides requests. It is safe for concurrent use. Call Close when you no longer need it.
type Gate struct {
	decider decider
	local   bool // limits can be made in code
	observe func(context.Context, Observation)
}

// Direct returns a gate that decides in Redis, by the policies that servers publish there and by limits made in code. The
// client must have ContextTimeoutEnabled, because deadlines have no effect without it. Direct reads the policies before it
// returns, for one second at most. It returns a gate also while Redis does not answer.
func Direct(rdb redis.UniversalClient, opts ...Option) (*Gate, error) {
	o, err := optionsOf(forDirect, deadlineDefault, opts)
	if err != nil {
		return nil, err
	}
	if !timesOut(rdb) {
		return nil, errors.New("redis client: ContextTimeoutEnabled is not set; without it no deadline holds")
	}
	held := newPolicies(o.names, o.logger, o.clock.Now)
	conn := redisConn{rdb}
	e := &engine{
		store:    newRedisStore(conn, o.deadline, o.clock.Now, held.clockNow),
		policies: held, follower: newFollower(held, conn),
		app: o.app, nodesSet: o.nodes, deadline: o.deadline, clock: o.clock, logger: o.logger, share: newShare(),
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.store.(*redisStore).life = ctx
	first, cancel := context.WithTimeout(ctx, lookFirstWithin)
	defer cancel()
	if err := e.follower.look(first, false); err != nil {
		o.logger.Warn("policies cannot be looked for in Redis", "error", err)
	}
	e.done.Add(2)
	go func() { defer e.done.Done(); e.follower.run(ctx) }()
	go func() { defer e.done.Done(); e.run(ctx) }()
	return &Gate{engineDecider{e}, true, o.observer}, nil
}

// timesOut says whether commands of a client end with their context.
func timesOut(rdb redis.UniversalClient) bool {
	switch client := rdb.(type) {
	case *redis.Client:
		return client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return client.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return client.Options().ContextTimeoutEnabled
	default:
		return true
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
	held, instant := newPolicies(nil, o.logger, o.clock.Now), instantOf(o.clock.Now())
	for _, file := range o.compiled {
		records, err := readRecords(file, instant)
		if err != nil {
			return nil, err
		}
		maps.Copy(held.held, records)
	}
	for _, made := range o.rules {
		set, err := madeInCode(made.policy, made.rules, "")
		if err != nil {
			return nil, newError(ErrRules, err, "rules: policy `%s`: %v", short(made.policy), err)
		}
		held.held[made.policy] = &policy{
			name: made.policy, apps: []string{"*"}, instantMS: instant, plan: ofPolicy(made.policy, set, instant),
		}
	}
	e := &engine{
		store: &memoryStore{keys: map[string]*life{}}, policies: held, app: o.app, nodesSet: o.nodes,
		clock: o.clock, logger: o.logger, share: newShare(),
	}
	return &Gate{engineDecider{e}, true, o.observer}, nil
}

// engineDecider is an engine as a decider.
type engineDecider struct{ e *engine }

func (d engineDecider) decide(ctx context.Context, a ask, _ string) (Decision, error) {
	return d.e.decide(ctx, a)
}

func (d engineDecider) close() error { return d.e.close() }

// Policy returns the limiter of a policy. The policy need not exist yet.
func (g *Gate) Policy(name string) *Limiter { return &Limiter{gate: g, name: name} }

// Limit returns a limiter of 1 to 8 rules made in code; several rules need a name each. Programs that use the same limit
// name share its budgets, which are those of no policy. The rules are stored with the budgets and nowhere else. A gate made by Remote returns an error.
func (g *Gate) Limit(name string, rules ...Rule) (*Limiter, error) {
	if !g.local {
		return nil, newError(ErrRules, nil, "rules: limits made in code are not available through a server")
	}
	set, err := madeInCode(name, rules, callerRule)
	if err != nil {
		return nil, newError(ErrRules, err, "rules: %v", err)
	}
	return &Limiter{gate: g, name: name, fixed: &policy{name: name, plan: ofCaller(name, set)}}, nil
}

// Close stops the background work of the gate and, for one second at most, charges in Redis what was admitted without it.
// It does not close the Redis client.
func (g *Gate) Close() error { return g.decider.close() }
