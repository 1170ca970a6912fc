package sluicegate

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// What only a server does, over HTTP: to settle, to explain, and batches that pass together or not at all.

// Check is one check of a batch.
type Check struct {
	// Limiter is one of the gate that decides.
	Limiter *Limiter
	// Key is 1 to 1,024 bytes; "" with Limiter.Shared.
	Key string
	// N is 1 to 2^31 permits; 0 stands for 1.
	N int64
}

// Result is what became of one check of a batch.
type Result struct {
	// Decision is the answer, if Err is nil.
	Decision Decision
	// Err is why there is no decision.
	Err error
}

// Batch is the answer to checks that pass together or not at all.
type Batch struct {
	// Allowed reports whether all checks passed. If not, nothing is charged.
	Allowed bool
	// Decisions are the answers in the order of the checks; a refused batch has one: the answer to the check that was refused.
	Decisions []Decision
	// Refused is the place of the check that was refused, from 0; -1 if Allowed.
	Refused int
}

// Settlement is the correction of what was charged to what it cost.
type Settlement struct {
	// Refunded is the permits that were given back; fewer than the difference if the budget was full before.
	Refunded int64
	// Taken is the permits that were charged in addition.
	Taken int64
	// Missing is the permits that were not left to be taken; they are not owed.
	Missing int64
	// Decision is what is left of the budget.
	Decision Decision
}

// Explanation is what a check would get now, and why.
type Explanation struct {
	// Decision is the answer that a check would get.
	Decision Decision
	// WouldCharge is the permits that it would take of each rule; 0 if it would be refused.
	WouldCharge int64
	// Overridden reports whether the key has rules of its own.
	Overridden bool
	// Overflow is what the policy does with requests over the limit: `reject`, `queue`, `degrade`, `divert` or `shadow`.
	Overflow string
	// OnStoreFailure is how requests are decided while the store does not answer: `local`, `allow` or `deny`.
	OnStoreFailure string
	// App is the app of the request; "" if it has none.
	App string
	// Apps are those that may use the policy; nil if all may.
	Apps []string
	// Rules are those of the key, in order.
	Rules []ExplainedRule
}

// ExplainedRule is one rule, looked at alone.
type ExplainedRule struct {
	// Name is the name of the rule.
	Name string
	// Algorithm is `token_bucket`, for example.
	Algorithm string
	// Limit is the largest cost that ever passes at once.
	Limit int64
	// Window is the time in which Limit comes back, in whole seconds; 0 if the rule has none.
	Window time.Duration
	// Known reports whether the store answered. The other fields are set only then.
	Known bool
	// Allowed reports whether this rule would let the request pass.
	Allowed bool
	// Remaining is the permits that are left.
	Remaining int64
	// RetryAfter is when this rule would let the request pass, if CanRetry.
	RetryAfter time.Duration
	// CanRetry is false if this rule never lets the request pass, or does now.
	CanRetry bool
	// ResetAfter is the time until the budget of this rule is full.
	ResetAfter time.Duration
}

const batchPath = "check:batch"

// requireHTTP returns the client of a server over HTTP; an error if the gate has none, as the verb needs one.
func (g *Gate) requireHTTP(verb string) (*remote, error) {
	switch d := g.decider.(type) {
	case *remote:
		return d, nil
	case *resp:
		return nil, notOverRESP(verb)
	default:
		return nil, newError(ErrNotInDirectMode, nil, "op: `%s` is not available in direct mode; ask a server", verb)
	}
}

// AllowEach decides checks, each by itself, as AllowN would; the results have their order. A server over HTTP gets 1 to 100
// of them in one request, which has one deadline. Any other gate decides one after the other. An error means that none was
// decided.
func (g *Gate) AllowEach(ctx context.Context, checks ...Check) ([]Result, error) {
	results := make([]Result, len(checks))
	r, err := g.requireHTTP("batch")
	if err != nil {
		for i, c := range checks {
			if results[i].Err = g.validateCheck(c); results[i].Err == nil {
				results[i].Decision, results[i].Err = c.Limiter.AllowN(ctx, c.Key, c.cost())
			}
		}
		return results, nil
	}
	var sent []remoteRequest
	var places []int
	for i, c := range checks {
		body, err := g.checkBody(r, c)
		if results[i].Err = err; err == nil {
			sent, places = append(sent, body), append(places, i)
		}
	}
	if len(sent) == 0 && len(checks) > 0 {
		return results, nil
	}
	got, started, err := g.batch(ctx, r, sent, false)
	if err != nil {
		return nil, err
	}
	for i, item := range got.Answers {
		d, err := r.decodeItem(item, sent[i].Policy)
		d.clock = g.ownClock
		results[places[i]] = Result{d, err}
		g.reportOutcome(ctx, sent[i].Policy, kernel.VerbCheck.String(), d, err, started)
	}
	return results, nil
}

// AllowAll takes the permits of 1 to 100 checks together, or none of them. While it is decided others may find the permits
// taken, and be refused. It needs a server over HTTP; without one it returns an ErrNotInDirectMode or
// an ErrNotOnThisWire. If the store fails in the middle, the text of the error names what stays charged.
func (g *Gate) AllowAll(ctx context.Context, checks ...Check) (Batch, error) {
	r, err := g.requireHTTP("batch")
	if err != nil {
		return Batch{}, err
	}
	sent := make([]remoteRequest, len(checks))
	for i, c := range checks {
		if sent[i], err = g.checkBody(r, c); err != nil {
			return Batch{}, err
		}
	}
	got, started, err := g.batch(ctx, r, sent, true)
	if err != nil {
		return Batch{}, err
	}
	out := Batch{Allowed: *got.Allowed, Refused: -1}
	if !out.Allowed {
		out.Refused = int(got.Refused.n)
	}
	for i, item := range got.Answers {
		name := sent[max(out.Refused, i)].Policy
		d, err := r.decodeItem(item, name)
		if err != nil {
			return Batch{}, err
		}
		d.clock = g.ownClock
		g.reportOutcome(ctx, name, kernel.VerbCheck.String(), d, nil, started)
		out.Decisions = append(out.Decisions, d)
	}
	return out, nil
}

// Settle corrects what was charged, 1 to 2^31 permits, to what it cost, 0 to 2^31. An id of 1 to 1,024 bytes is settled once
// an hour: the second time gets an ErrServer with the Status 409, and changes nothing. It needs a server over HTTP.
func (l *Limiter) Settle(ctx context.Context, key, id string, charged, cost int64) (out Settlement, err error) {
	r, err := l.gate.requireHTTP("settle")
	if err != nil {
		return out, err
	}
	started := time.Now()
	defer func() { l.gate.reportOutcome(ctx, l.name, "settle", out.Decision, err, started) }()
	switch {
	case len(id) < 1 || len(id) > keyMax:
		return out, newError(ErrIDLength, nil, "id: `%d` bytes are outside 1..=1024", len(id))
	case charged < 1 || charged > CostMax:
		return out, newError(ErrCostRange, nil, "charged: `%d` is outside 1..=2147483648", charged)
	case cost < 0 || cost > CostMax:
		return out, newError(ErrCostRange, nil, "cost: `%d` is outside 0..=2147483648", cost)
	}
	body, err := l.gate.checkBody(r, Check{l, key, 1})
	if err != nil {
		return out, err
	}
	var got remoteSettlement
	_, err = r.call(ctx, remoteCall{verb: "settle", policy: l.name, body: struct {
		remoteRequest
		ID      string `json:"id"`
		Charged int64  `json:"charged"`
		Cost    int64  `json:"cost"`
	}{body, id, charged, cost}}, &got)
	if err != nil {
		return out, err
	}
	return Settlement{got.Refunded.n, got.Taken.n, got.Missing.n, got.Decision.decision(l.name, nil)}, nil
}

// Explain returns what AllowN would, and why; it changes nothing. For operators: the server looks at each rule by itself. It
// needs a server over HTTP.
func (l *Limiter) Explain(ctx context.Context, key string, n int64) (out Explanation, err error) {
	r, err := l.gate.requireHTTP("explain")
	if err != nil {
		return out, err
	}
	started := time.Now()
	defer func() { l.gate.reportOutcome(ctx, l.name, "explain", out.Decision, err, started) }()
	if n < 1 {
		return out, newError(ErrCostRange, nil, "cost: `%d` is outside 1..=2147483648", n)
	}
	body, err := l.gate.checkBody(r, Check{l, key, n})
	if err != nil {
		return out, err
	}
	var got remoteExplanation
	if _, err := r.call(ctx, remoteCall{verb: "explain", policy: l.name, body: body}, &got); err != nil {
		return out, err
	}
	out = Explanation{
		Decision: got.Decision.decision(l.name, nil), WouldCharge: got.WouldCharge.n, Overridden: *got.RulesOf == "override",
		Overflow: *got.Overflow, OnStoreFailure: *got.OnStoreFailure, Apps: got.Apps,
	}
	if got.App != nil {
		out.App = *got.App
	}
	for _, rule := range *got.Rules {
		window := kernel.Span(min(rule.WindowS.n, kernel.SpanMaxUS/1_000_000) * 1_000_000)
		e := ExplainedRule{Name: *rule.Name, Algorithm: *rule.Algorithm, Limit: rule.Limit.n, Window: window}
		if rule.Left != nil {
			left := rule.Left.applyTo(Decision{})
			e.Known, e.Allowed, e.Remaining = true, left.Allowed, left.Remaining
			e.RetryAfter, e.CanRetry, e.ResetAfter = left.RetryAfter, left.CanRetry, left.ResetAfter
		}
		out.Rules = append(out.Rules, e)
	}
	return out, nil
}

// reportOutcome records the outcome of a request, and calls the observers.
func (g *Gate) reportOutcome(ctx context.Context, policy, verb string, d Decision, err error, started time.Time) {
	g.recordOutcome(ctx, policy, d.Mode, err)
	took := time.Since(started)
	for _, observe := range g.observers {
		observe(ctx, Observation{policy, verb, d, err, took})
	}
}

func (c Check) cost() int64 { return cmp.Or(c.N, 1) }

// validateCheck returns an error if a check has no limiter of this gate.
func (g *Gate) validateCheck(c Check) error {
	if c.Limiter == nil || c.Limiter.gate != g {
		return newError(ErrRules, nil, "rules: a check has no limiter of this gate")
	}
	return nil
}

// checkBody validates a check, and returns the body of its request.
func (g *Gate) checkBody(r *remote, c Check) (remoteRequest, error) {
	if err := g.validateCheck(c); err != nil {
		return remoteRequest{}, err
	}
	if err := c.Limiter.validate(c.Key, c.cost()); err != nil {
		return remoteRequest{}, err
	}
	return r.body(c.Limiter.name, c.Key, "", c.cost())
}

// batch asks for checks, from started on. It reports the outcome of each of them if none was decided.
func (g *Gate) batch(ctx context.Context, r *remote, checks []remoteRequest, atomic bool) (got remoteBatch, started time.Time, err error) {
	started = time.Now()
	got.checks, got.atomic = len(checks), atomic
	_, err = r.call(ctx, remoteCall{verb: batchPath, body: struct {
		Atomic bool            `json:"atomic,omitempty"`
		Checks []remoteRequest `json:"checks"`
	}{atomic, checks}}, &got)
	if err != nil {
		for _, c := range checks {
			g.reportOutcome(ctx, c.Policy, kernel.VerbCheck.String(), Decision{}, err, started)
		}
	}
	return got, started, err
}

// decodeItem decodes one answer of a batch: a decision, or a problem.
func (r *remote) decodeItem(item json.RawMessage, policy string) (Decision, error) {
	var got struct {
		Type string `json:"type"`
		remoteAnswer
	}
	err := json.Unmarshal(item, &got)
	switch {
	case err == nil && got.Type != "":
		return Decision{}, r.problem(http.StatusOK, item, kernel.VerbCheck.String(), policy)
	case err != nil || !got.complete():
		return Decision{}, notADecision()
	}
	return got.decision(policy, nil), nil
}
