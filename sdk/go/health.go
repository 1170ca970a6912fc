package sluicegate

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Status is how well a gate decides.
type Status string

// The states of a gate.
const (
	// StatusUp: Redis or the server answers, and the policies were read, if the program uses any.
	StatusUp Status = "up"
	// StatusDegraded: requests are decided, but not all as they should: without Redis by on_store_failure of their policies, or
	// by policies that Redis does not have any more. Requests under a policy that cannot be read get errors.
	StatusDegraded Status = "degraded"
	// StatusDown: requests get errors.
	StatusDown Status = "down"
)

// Health is the state of a gate.
type Health struct {
	// Status is how well the gate decides.
	Status Status
	// Address is that of Redis or of the server, without a password; "" of a gate that has neither.
	Address string
	// Policies is how many policies the gate holds; 0 if a server holds them.
	Policies int
	// Err is why the status is not StatusUp; it is an *Error.
	Err error
}

// failureLasts is how long an error of Redis or of the server counts, if there was no request since.
const failureLasts = time.Minute

// Health reads the policies from Redis, or pings the server, for one second at most, and returns the state of the
// gate. A last request without an answer counts as well, for a minute; so does a wrong token. A program counts as one that uses
// policies once Policy, Require or [Policies] was called. For a readiness probe: a gate of [Direct] that is degraded goes on to decide.
//
// A name of a policy that is wrong counts only if it is given: the gate is degraded then if requests under one of the policies
// would get an error, and down if those under all of them would.
func (g *Gate) Health(ctx context.Context, policies ...string) Health {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	if len(policies) > 0 {
		g.needed.Store(true)
	}
	h := g.state(ctx)
	var wrong []error
	for _, name := range policies {
		if err := g.require(ctx, name); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 && h.Status == StatusUp {
		h.Status, h.Err = StatusDegraded, wrong[0]
	}
	if len(wrong) > 0 && len(wrong) == len(policies) {
		h.Status = StatusDown
	}
	return h
}

// state returns the health, whatever policies are used.
func (g *Gate) state(ctx context.Context) Health {
	h := g.deciderState(ctx)
	if failure := g.failing.Load(); h.Status == StatusUp && failure != nil && g.clock.Now().Sub(failure.at) < failureLasts {
		h.Status, h.Err = StatusDegraded, failure.err
		if failure.err.Status == http.StatusUnauthorized || failure.err.Status == http.StatusForbidden {
			h.Status = StatusDown // no token, or one that the server does not accept
		}
	}
	return h
}

// deciderState returns the health of what decides.
func (g *Gate) deciderState(ctx context.Context) Health {
	_, address := g.decider.endpoint()
	l, isLocal := g.decider.(local)
	if !isLocal {
		if err := g.decider.ping(ctx); err != nil {
			return Health{Status: StatusDown, Address: address, Err: err}
		}
		return Health{Status: StatusUp, Address: address}
	}
	level, err := l.engine.Health(ctx, g.needed.Load())
	policyCount, _ := l.engine.Policies.State()
	h := Health{Status: levelStatuses[level], Address: address, Policies: policyCount}
	if err != nil {
		h.Err = errorOf(err, describeEndpoint(l))
	}
	return h
}

// levelStatuses are the statuses of the levels of an engine.
var levelStatuses = [...]Status{engine.LevelUp: StatusUp, engine.LevelDegraded: StatusDegraded, engine.LevelDown: StatusDown}

// Require returns an error unless requests under each of these policies would be decided: it looks once, and names every policy
// that is unknown, not available to the app, or cannot be read. Call it when the program starts, so that a wrong name is found
// before the first request.
func (g *Gate) Require(ctx context.Context, policies ...string) error {
	g.needed.Store(true)
	var all []error
	for _, name := range policies {
		err := g.require(ctx, name)
		if err != nil {
			all = append(all, err)
		}
		var sdkErr *Error
		if errors.As(err, &sdkErr) && isStoreError(sdkErr) { // it is the same for the others
			break
		}
	}
	return errors.Join(all...)
}

// require returns why requests under a policy would get no decision. A server gets a peek at the budget that all share, which
// changes nothing.
func (g *Gate) require(ctx context.Context, policy string) error {
	switch d := g.decider.(type) {
	case local:
		if err := d.engine.Require(ctx, engine.Request{Policy: policy, Verb: kernel.VerbCheck}); err != nil {
			return errorOf(err, describeEndpoint(d))
		}
		return nil
	case byFunc:
		return nil
	default:
		_, err := d.decide(ctx, engine.Request{Policy: policy, Verb: kernel.VerbPeek, Cost: 1})
		return err
	}
}
