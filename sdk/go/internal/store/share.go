package store

import (
	"slices"
	"sync"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// reportedMax bounds the keys of which this process remembers what Redis last reported.
	reportedMax = 1_000_000
	// accountsMax bounds the keys that are decided here while Redis does not answer: it is what may be owed.
	accountsMax = 250_000
	// behindUS is how long a decision by the share may come after a later one and be decided at its instant.
	behindUS = 1_000_000
	// olderUS is the time after one answer for which another that reports less may be an older one.
	olderUS = 2_000_000
	// laterUS is the retry of a request that this process cannot decide: Redis may be back by then.
	laterUS = 1_000_000
)

// Share decides by this process' part of a limit while Redis does not answer, and keeps what is owed for it.
type Share struct {
	mu       sync.Mutex
	reported map[string]*reportedUsage
	accounts map[string]*account
	owing    map[string]bool // keys of accounts that may owe something
}

// reportedUsage is what Redis last reported of a key.
type reportedUsage struct {
	kernel.KeyState
	raised []int64 // when it last reported of each rule, by its place, as much as was known, or more
}

// account is what was decided here for a key.
type account struct {
	plan     *wire.Plan
	stored   kernel.KeyState // what Redis knows
	used     kernel.KeyState // the same, and what was admitted here
	n        int64
	debt     *DebtCharge
	chargeID string // of its charges, until something is charged
	latest   int64
}

// NewShare returns a share of which nothing is known and nothing owed.
func NewShare() *Share {
	return &Share{reported: map[string]*reportedUsage{}, accounts: map[string]*account{}, owing: map[string]bool{}}
}

// Learn takes over what a decision of Redis says of each rule.
func (s *Share) Learn(key string, p *wire.Plan, a Answer, now int64) {
	reported := a.inUse(p.Set)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.reported[key]
	if n == nil {
		makeRoom(s.reported, reportedMax)
		n = &reportedUsage{KeyState: kernel.NewKeyState(p.Set)}
		s.reported[key] = n
	}
	var moments [kernel.RulesMax]kernel.Moment
	at := p.Set.AppendMoments(moments[:0], kernel.Request{Now: now, Windows: p.Windows(now)})
	n.TurnTo(p.Set, at)
	for len(n.raised) < len(at) {
		n.raised = append(n.raised, now-olderUS)
	}
	for i := range at {
		if rule := &p.Set.Rules[i]; reported[i] != notReported && rule.IsReported() {
			n.report(i, reported[i], at[i])
		}
	}
	if account := s.accounts[key]; account != nil {
		account.raise(p, reported, at)
	}
}

// report puts down what Redis says is in use of a rule.
func (n *reportedUsage) report(i int, reported int64, at kernel.Moment) {
	rule, known, since := &n.Set.Rules[i], n.UsedOf(i, at), at.Now-n.raised[i]
	switch {
	case reported >= known:
		n.States[i], n.raised[i] = rule.WithUsed(at, reported), at.Now
	case max(since, -since) >= olderUS:
		n.States[i] = rule.WithUsed(at, reported)
	case rule.Code != kernel.CodeTokenBucket && rule.Code != kernel.CodeLeakyBucket:
		n.States[i] = rule.WithUsed(at, known)
	}
}

// raise brings both states up to what Redis says is in use of each rule: as far as there is room for it here, and all the way
// if Redis says more than the limit, which was lowered then and may rise without Redis.
func (c *account) raise(p *wire.Plan, reported [kernel.RulesMax]int64, at []kernel.Moment) {
	c.turn(p, at)
	for i := range at {
		rule := &p.Set.Rules[i]
		if !rule.IsReported() {
			continue
		}
		more := reported[i] - c.stored.UsedOf(i, at[i])
		if more <= 0 {
			continue
		}
		if reported[i] <= rule.Limit() {
			more = min(more, c.used.Available(i, at[i]))
		}
		c.used.Charge(i, more, at[i])
		c.stored.Charge(i, more, at[i])
		if c.debt != nil {
			// When the debt is charged, what Redis knows is this.
			c.debt.upTo.TurnTo(p.Set, at)
			c.debt.upTo.Charge(i, more, at[i])
		}
	}
}

// turn takes both states over to the rules of a plan.
func (c *account) turn(p *wire.Plan, at []kernel.Moment) {
	c.plan = p
	c.stored.TurnTo(p.Set, at)
	c.used.TurnTo(p.Set, at)
}

// owed returns the permits of each rule that were admitted here and that Redis does not know; false if none are.
func (c *account) owed(at []kernel.Moment) ([]int64, bool) {
	out, any := make([]int64, len(c.plan.Set.Rules)), false
	for i, rule := range c.plan.Set.Rules {
		if rule.Flags&kernel.FlagPermits == 0 {
			out[i] = min(kernel.CeilDiv(max(c.used.UsedOf(i, at[i])-c.stored.UsedOf(i, at[i]), 0), c.n), kernel.CostMax)
		}
		any = any || out[i] > 0
	}
	return out, any
}

// open returns the account of a key: the one that is there, or a new one that is not kept yet.
func (s *Share) open(key string, p *wire.Plan, n, now int64) (*account, int64, bool) {
	if c := s.accounts[key]; c != nil {
		if c.latest > now && c.latest-now <= behindUS {
			now = c.latest
		}
		c.turn(p, p.MomentsAt(now))
		return c, now, true
	}
	c := &account{plan: p, stored: kernel.NewKeyState(p.Set), used: kernel.NewKeyState(p.Set), n: n, chargeID: wire.NewID()}
	if known := s.reported[key]; known != nil {
		c.stored = known.KeyState.Clone()
		c.stored.TurnTo(p.Set, p.MomentsAt(now))
	}
	c.used = c.stored.Clone()
	return c, now, false
}

// keep keeps a new account if it says anything; false if there is no place for it.
func (s *Share) keep(key string, c *account, there bool) bool {
	if there {
		s.owing[key] = true
		return true
	}
	if len(s.accounts) >= accountsMax {
		return false
	}
	s.accounts[key], s.owing[key] = c, true
	return true
}

// RefusedFor is a refusal where nothing is known of the budget.
func RefusedFor(p *wire.Plan, retry int64) Answer {
	return Answer{Verdict: kernel.Verdict{Retry: retry}, Set: p.Set}
}

// Decide decides a request by the share among n nodes.
func (s *Share) Decide(q Question, n int64) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now, there := s.open(q.Key, q.Plan, n, q.Now)
	n = c.n
	if q.Cost > kernel.CostMax/n {
		return RefusedFor(q.Plan, laterUS)
	}
	before := c.used.Clone()
	v := c.take(q, now)
	if q.Verb != kernel.VerbPeek {
		c.latest = max(now, c.latest)
		if (v.Allowed || began(before, c.used)) && !s.keep(q.Key, c, there) {
			return RefusedFor(q.Plan, laterUS)
		}
	}
	if v.Retry == kernel.Never && q.fitsEvery() {
		v.Retry = laterUS
	}
	v.Granted, v.Remaining = v.Granted/n, v.Remaining/n
	return Answer{Verdict: v, Set: q.Plan.Set, nodes: n}
}

// take decides a request at an instant on what is in use here: each permit counts n times.
func (c *account) take(q Question, now int64) kernel.Verdict {
	r := q.Request
	r.Cost, r.Now, r.Windows = q.Cost*c.n, now, q.Plan.Windows(now)
	v := c.used.Decide(q.Plan.Set, r)
	if part := v.Granted % c.n; q.Verb == kernel.VerbAtMost && part > 0 {
		// Only whole permits are taken and granted. The rest of the answer is as it was decided.
		c.used.Refund(part, c.plan.MomentsAt(now))
		v.Granted -= part
	}
	if q.Verb == kernel.VerbAtMost && v.Allowed && v.Granted == 0 {
		v.Allowed, v.Wait, v.Retry = false, 0, laterUS
	}
	return v
}

// began reports whether a budget has begun to fill.
func began(before, after kernel.KeyState) bool {
	for i := range after.States {
		if before.States[i] == nil && after.States[i] != nil {
			return true
		}
	}
	return false
}

// fitsEvery reports whether a cost is within the whole limit of every rule.
func (q Question) fitsEvery() bool {
	return !slices.ContainsFunc(q.Plan.Set.Rules, func(r kernel.Rule) bool { return q.Cost > r.Limit() })
}

// Admit counts what passes under `on_store_failure: allow`, as far as the budget goes.
func (s *Share) Admit(q Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now, there := s.open(q.Key, q.Plan, 1, q.Now)
	if q.Cost > kernel.CostMax/c.n {
		return
	}
	q.Verb = kernel.VerbAtMost
	if c.take(q, now).Allowed {
		c.latest = max(now, c.latest)
		s.keep(q.Key, c, there)
	}
}

// OnPermit releases or renews a permit that this process handed out by its share; false if it did not.
func (s *Share) OnPermit(q Question) (Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[q.Key]
	if c == nil || c.used.HolderOf(q.Permit, q.Now) < 0 {
		return Answer{}, false
	}
	c.turn(q.Plan, q.Plan.MomentsAt(q.Now))
	return Answer{Verdict: c.used.Decide(q.Plan.Set, q.Request), Set: q.Plan.Set}, true
}

// DebtFor returns the debt of a key that goes with a question. alone: it has to go by itself, as more has passed here
// since it was made. The caller settles it after the question.
func (s *Share) DebtFor(key string, p *wire.Plan, now int64) (b *DebtCharge, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[key]
	if c == nil {
		return nil, false
	}
	at := p.MomentsAt(now)
	if c.debt == nil || c.used.Set != p.Set {
		c.turn(p, at)
	}
	owed, any := c.owed(at)
	switch {
	case c.debt == nil && !any:
		delete(s.owing, key)
		return nil, false
	case c.debt != nil && len(c.debt.owed) != len(owed):
		// Other rules came in between: what they owe is not in that charge.
		c.chargeID, c.debt = wire.NewID(), nil
	}
	if c.debt == nil {
		c.debt = &DebtCharge{id: c.chargeID, owed: owed, upTo: c.used.Clone()}
	}
	if c.debt.doubt {
		for i := range owed {
			alone = alone || owed[i] > c.debt.owed[i]
		}
	}
	c.debt.users++
	return c.debt, alone
}

// Settle takes over what became of a charge, and reports whether the key still owes anything.
func (s *Share) Settle(key string, b *DebtCharge, p *wire.Plan, a Answer, f *wire.Failure, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[key]
	b.users--
	if f != nil && f.Charged {
		b.doubt = true
	}
	if c == nil || c.debt != b {
		return false
	}
	at := p.MomentsAt(now)
	switch {
	case f == nil:
		c.stored, c.debt = b.upTo.Clone(), nil
		if len(a.Charged) > 0 && slices.Max(a.Charged) > 0 {
			c.chargeID = wire.NewID()
		}
		c.turn(p, at)
		for i, rule := range p.Set.Rules {
			left := b.owed[i] - min(a.Charged[i], b.owed[i])
			if left > 0 && c.stored.States[i] != nil {
				rule.Rewind(c.stored.States[i], at[i])
				rule.Refund(c.stored.States[i], at[i], left*c.n)
			}
		}
	case b.users == 0 && !b.doubt:
		c.debt = nil
	}
	_, any := c.owed(at)
	return any
}

// Debtors returns up to so many keys that may owe something, with the rules of their accounts.
func (s *Share) Debtors(most int) map[string]*wire.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*wire.Plan{}
	for key := range s.owing {
		if len(out) == most {
			break
		}
		c := s.accounts[key]
		if c == nil {
			delete(s.owing, key)
			continue
		}
		out[key] = c.plan
	}
	return out
}

// Forget drops the account of a key.
func (s *Share) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, key)
	delete(s.owing, key)
}

// makeRoom drops entries, any of them, until there is room for one more.
func makeRoom[V any](entries map[string]V, most int) {
	for key := range entries {
		if len(entries) < most {
			return
		}
		delete(entries, key)
	}
}

// Sweep makes room: accounts go that owe nothing, hold no permit and have neither a charge under way nor a calendar.
func (s *Share) Sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.accounts {
		if c.debt != nil || c.plan.Windows(now) != nil {
			continue
		}
		at := c.plan.MomentsAt(now)
		_, any := c.owed(at)
		for i, rule := range c.plan.Set.Rules {
			any = any || rule.Flags&kernel.FlagPermits != 0 && c.used.UsedOf(i, at[i]) > 0
		}
		if !any {
			delete(s.accounts, key)
			delete(s.owing, key)
		}
	}
}
