package sluicegate

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
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
	sweepEvery    = time.Second
)

// engine decides: by the store, and by what surrounds it while the store does not answer.
type engine struct {
	store    store
	policies *policies
	follower *follower // nil: nothing is followed
	app      string
	nodesSet int64 // 0: as the servers say
	deadline time.Duration
	clock    Clock
	logger   *slog.Logger

	breaker    breaker
	remembered remembered
	share      *share
	queue      queue

	stop context.CancelFunc
	done sync.WaitGroup
}

// ask is one request of a caller, whose values were checked.
type ask struct {
	limiter *Limiter
	key     string
	verb    verb
	cost    int64
	maxWait int64
	permit  permitID
}

func (e *engine) nowUS() int64 { return e.clock.Now().UnixMicro() }

// nodes gives among how many nodes a limit is shared without Redis.
func (e *engine) nodes() int64 {
	if e.nodesSet > 0 {
		return e.nodesSet
	}
	return max(e.policies.nodesNow(), 1)
}

// policyFor finds the policy of a request, or says why it may not be used.
func (e *engine) policyFor(ctx context.Context, a ask) (*policy, error) {
	if a.limiter.fixed != nil {
		return a.limiter.fixed, nil
	}
	name := a.limiter.name
	p, why := e.policies.get(name)
	if p == nil && e.follower != nil {
		if err := e.follower.lookFor(ctx, e.deadline); err != nil {
			return nil, storeError(&failure{classNoAnswer, false, err})
		}
		p, why = e.policies.get(name)
	}
	switch {
	case p == nil && why != "":
		return nil, newError(ErrUnreadablePolicy, nil, "policy: `%s` cannot be read: %s", name, outside(why))
	case p == nil:
		return nil, newError(ErrUnknownPolicy, nil, "policy: unknown policy `%s`", name)
	}
	if err := p.allows(e.app, a.verb); err != nil {
		return nil, err
	}
	return p, nil
}

// decide decides a request, and does with it what the policy says of requests over the limit.
func (e *engine) decide(ctx context.Context, a ask) (Decision, error) {
	p, err := e.policyFor(ctx, a)
	if err != nil {
		return Decision{}, err
	}
	if p.overflow.kind == "queue" && a.verb == verbCheck {
		return e.queued(ctx, p, a)
	}
	d, _, err := e.once(ctx, p, a)
	return d, err
}

// once decides a request, without holding it back.
func (e *engine) once(ctx context.Context, p *policy, a ask) (Decision, answer, error) {
	pl := p.planFor(a.key, e.nowUS())
	got, mode, err := e.answer(ctx, p, pl, a)
	if err != nil {
		return Decision{}, got, err
	}
	return decisionOf(p, pl, a.verb, got, mode), got, nil
}

// decisionOf says an answer to the caller.
func decisionOf(p *policy, pl *plan, v verb, a answer, mode Mode) Decision {
	d := Decision{
		Allowed: a.allowed, Granted: a.granted, Wait: span(a.wait), Limit: a.set.rules[a.rule].limit(),
		Remaining: a.remaining, ResetAfter: span(a.resetAfter), Policy: p.name, Mode: mode,
		Rule: pl.ownName(a.set, a.rule), Quotas: pl.quotas(),
	}
	if !a.allowed && a.retry != never {
		d.CanRetry, d.RetryAfter = true, span(a.retry)
	}
	if a.allowed || !p.overflow.covers(v) {
		return d
	}
	switch p.overflow.kind {
	case "shadow":
		d.Allowed, d.Overflow.Kind = true, OverflowShadow
	case "degrade", "divert":
		d.Overflow = p.overflow.overflow
	}
	return d
}

// ownName gives the name of the rule that decided; of later rules, of the own one that is called so, or the first.
func (p *plan) ownName(set *ruleSet, i int) string {
	return p.set.rules[max(p.set.placeOf(set, i), 0)].name
}

func (p *plan) quotas() []Quota {
	p.quotasOnce.Do(func() {
		for _, r := range p.set.rules {
			p.quotaList = append(p.quotaList, Quota{r.name, r.limit(), span(r.windowUS), r.code == codeConcurrency})
		}
	})
	return p.quotaList
}

// answer goes through everything that may decide, in order.
func (e *engine) answer(ctx context.Context, p *policy, pl *plan, a ask) (answer, Mode, error) {
	now := e.nowUS()
	if !pl.set.supports(a.verb) {
		return answer{}, "", unsupported(a.verb, p.name)
	}
	at := placeOf(pl.policy, a.key)
	if a.verb == verbCheck {
		if got, ok := e.remembered.find(at, pl, a.cost, now); ok {
			return got, ModeRemembered, nil
		}
	}
	q := question{plan: pl, key: string(at[:]), request: request{
		verb: a.verb, cost: a.cost, maxWait: a.maxWait, permit: a.permit, now: now, windows: pl.windows(now),
	}}
	if a.verb == verbRelease || a.verb == verbRenew {
		if got, ok := e.share.onPermit(q); ok {
			return got, ModeLocal, nil
		}
	}
	f := &failure{classNoAnswer, false, errOpen}
	if e.breaker.allows(now) {
		var got answer
		if got, f = e.askOwing(ctx, q); f == nil || f.class != classCaller || f.cause == errUnsupported {
			e.count(now, f)
		}
		if f == nil {
			e.learn(q, got)
			return got, ModeStore, nil
		}
	}
	if (a.verb == verbRefund || a.verb == verbReset) && f.class != classCaller {
		e.remembered.drop(q.key)
	}
	return e.without(p, q, f)
}

var errOpen = errors.New("redis did not answer before, and is not asked now")

func unsupported(v verb, policy string) *Error {
	return newError(ErrUnsupportedVerb, nil, "op: `%v` is not supported by policy `%s`", v, policy)
}

// learn keeps what a decision of the store says.
func (e *engine) learn(q question, a answer) {
	switch q.verb {
	case verbCheck:
		e.remembered.keep(q.key, q.plan, q.cost, q.now, a)
	case verbRefund, verbReset, verbRelease, verbRenew:
		e.remembered.drop(q.key)
	}
	if _, memory := e.store.(*memoryStore); !memory {
		e.share.learn(q.key, q.plan, a, q.now)
	}
}

// askOwing asks the store, and has it charge what is owed for the key before.
func (e *engine) askOwing(ctx context.Context, q question) (answer, *failure) {
	for range questionsMax {
		b, alone := e.share.billFor(q.key, q.plan, q.now)
		if b == nil {
			return e.store.ask(ctx, q)
		}
		sent := q
		if sent.bill = b; alone {
			sent.request = request{verb: verbPeek, cost: 1, now: q.now, windows: q.windows}
		}
		a, f := e.store.ask(ctx, sent)
		owes := e.share.settle(q.key, b, q.plan, a, f, q.now)
		switch {
		case f != nil && alone:
			return a, &failure{f.class, false, f.cause}
		case f != nil:
			return a, f
		case alone || owes && a.allowed && takes(q.verb):
			continue
		}
		return a, nil
	}
	return answer{}, &failure{classContended, true, errContended}
}

// count tells the breaker what became of a question, and the log when that changes who decides.
func (e *engine) count(now int64, f *failure) {
	switch opened, closed := e.breaker.count(now, f != nil && f.class == classNoAnswer); {
	case opened:
		e.logger.Warn("redis does not answer in time; policies decide by on_store_failure", "deadline", e.deadline, "error", f.cause)
	case closed:
		e.logger.Info("redis answers again")
	}
}

func takes(v verb) bool {
	return v == verbCheck || v == verbReserve || v == verbAtMost || v == verbAcquire
}

// without decides a request that the store left without a decision.
func (e *engine) without(p *policy, q question, f *failure) (answer, Mode, error) {
	if f.cause == errUnsupported {
		return answer{}, "", unsupported(q.verb, p.name)
	}
	if f.class == classCaller {
		return answer{}, "", storeError(f)
	}
	if q.verb == verbRefund || q.verb == verbReset || q.verb == verbRelease || q.verb == verbRenew {
		return answer{}, "", storeError(f)
	}
	if f.class == classContended {
		return refusedFor(q.plan, shedRetryUS), ModeShed, nil
	}
	e.logger.Debug("redis did not decide", "policy", p.name, "error", f.cause, "perhaps_charged", f.charged)
	switch {
	case p.onFailure == FailAllow:
		if q.verb != verbPeek && q.verb != verbAcquire {
			e.share.admit(q)
		}
		return answer{verdict: verdict{allowed: true, granted: q.cost}, set: q.plan.set}, ModeAllow, nil
	case p.onFailure == FailDeny || f.class == classThisKey:
		return refusedFor(q.plan, denyRetryUS), ModeDeny, nil
	default:
		return e.share.decide(q, e.nodes()), ModeLocal, nil
	}
}

// run pays debts and makes room until the context ends.
func (e *engine) run(ctx context.Context) {
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
		if time.Since(swept) >= sweepEvery {
			e.share.sweep(e.nowUS())
			swept = time.Now()
		}
	}
}

// pay has the store charge what is owed for some keys, by peeks; and goes on while debts get fewer.
func (e *engine) pay(ctx context.Context) {
	for before := 0; ; {
		debtors := e.share.debtors(payKeysMax)
		if len(debtors) == 0 || len(debtors) == before {
			return
		}
		before = len(debtors)
		for key, pl := range debtors {
			// A policy that is gone takes its debts along. One of a later version is still there: its budget is charged.
			if p, unreadable := e.policies.get(pl.policy); p == nil && unreadable == "" && pl.rulesKey != "" {
				e.share.forget(key)
				continue
			}
			now := e.nowUS()
			if !e.breaker.allows(now) {
				return
			}
			q := question{plan: pl, key: key, request: request{verb: verbPeek, cost: 1, now: now, windows: pl.windows(now)}}
			b, _ := e.share.billFor(key, pl, now)
			if b == nil {
				continue
			}
			q.bill = b
			a, f := e.store.ask(ctx, q)
			e.share.settle(key, b, pl, a, f, now)
			if f != nil && f.class == classCaller {
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

// close stops following, and pays for a second at most what is owed.
func (e *engine) close() error {
	if e.stop != nil {
		e.stop()
	}
	e.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), payLastWithin)
	defer cancel()
	for len(e.share.debtors(1)) > 0 && ctx.Err() == nil {
		e.pay(ctx)
		_ = sleep(ctx, payLastEvery)
	}
	return nil
}
