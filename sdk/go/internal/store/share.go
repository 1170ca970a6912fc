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
	// lagMaxUS is how long a decision by the share may come after a later one and be decided at its instant.
	lagMaxUS = 1_000_000
	// staleWithinUS is the time after one answer for which another that reports less may be an older one.
	staleWithinUS = 2_000_000
	// undecidedRetryUS is the retry of a request that this process cannot decide: Redis may be back by then.
	undecidedRetryUS = 1_000_000
	// askedRetryUS is the retry of a request that the share would admit if Redis grants nothing that it is asked for: that is known after a
	// deadline.
	askedRetryUS = 100_000
)

// Share decides by this process' part of a limit while Redis does not answer, and keeps what is owed for it.
type Share struct {
	mu       sync.Mutex
	reported map[string]*reportedUsage
	accounts map[string]*account
	owing    map[string]bool // keys of accounts that may owe something
	asked    *asked
}

// reportedUsage is what Redis last reported of a key.
type reportedUsage struct {
	kernel.KeyState
	raised []int64 // when it last reported at least as much as was known, of each rule by its place
}

// account is what was decided here for a key.
type account struct {
	rules    *wire.CompiledRules
	stored   kernel.KeyState // what Redis has
	used     kernel.KeyState // the same, and what was admitted here
	nodes    int64
	debt     *DebtCharge
	chargeID string // of its charges, until something is charged
	latestUS int64
}

// NewShare returns a share of which nothing is known and nothing owed.
func NewShare() *Share {
	return &Share{reported: map[string]*reportedUsage{}, accounts: map[string]*account{}, owing: map[string]bool{}, asked: newAsked()}
}

// Ask records that Redis is asked for permits of a key, until [Share.Asked].
func (s *Share) Ask(key string, permits int64) { s.asked.add(key, permits) }

// Asked records the end of that: after [Share.Learn], and before the share decides the request.
func (s *Share) Asked(key string, permits int64) { s.asked.add(key, -permits) }

// Learn takes over what a decision of Redis reports of each rule.
func (s *Share) Learn(key string, rules *wire.CompiledRules, answer Answer, now int64) {
	reported := answer.inUse(rules.Set)
	s.mu.Lock()
	defer s.mu.Unlock()
	usage := s.reported[key]
	if usage == nil {
		makeRoom(s.reported, reportedMax)
		usage = &reportedUsage{KeyState: kernel.NewKeyState(rules.Set)}
		s.reported[key] = usage
	}
	var moments [kernel.RulesMax]kernel.Moment
	at := rules.Set.AppendMoments(moments[:0], kernel.Request{Now: now, Windows: rules.Windows(now)})
	usage.AdoptRules(rules.Set, at)
	for len(usage.raised) < len(at) {
		usage.raised = append(usage.raised, now-staleWithinUS)
	}
	for i := range at {
		if rule := &rules.Set.Rules[i]; reported[i] != notReported && rule.IsReported() {
			usage.record(i, reported[i], at[i])
		}
	}
	if account := s.accounts[key]; account != nil {
		account.raise(rules, reported, at)
	}
}

// record records what Redis reports in use of a rule.
func (usage *reportedUsage) record(i int, reported int64, at kernel.Moment) {
	rule, known, since := &usage.Set.Rules[i], usage.UsedOf(i, at), at.Now-usage.raised[i]
	switch {
	case reported >= known:
		usage.States[i], usage.raised[i] = rule.WithUsed(at, reported), at.Now
	case max(since, -since) >= staleWithinUS:
		usage.States[i] = rule.WithUsed(at, reported)
	case rule.Code != kernel.CodeTokenBucket && rule.Code != kernel.CodeLeakyBucket:
		usage.States[i] = rule.WithUsed(at, known)
	}
}

// raise brings both states up to what Redis reports in use of each rule: as far as there is room for it here, and all the way
// if Redis reports more than the limit, which was lowered then and may rise without Redis.
func (acct *account) raise(rules *wire.CompiledRules, reported [kernel.RulesMax]int64, at []kernel.Moment) {
	acct.adoptRules(rules, at)
	for i := range at {
		rule := &rules.Set.Rules[i]
		if !rule.IsReported() {
			continue
		}
		more := reported[i] - acct.stored.UsedOf(i, at[i])
		if more <= 0 {
			continue
		}
		if reported[i] <= rule.Limit() {
			more = min(more, acct.used.Available(i, at[i]))
		}
		acct.used.Charge(i, more, at[i])
		acct.stored.Charge(i, more, at[i])
		if acct.debt != nil {
			// When the debt is charged, this is what Redis has.
			acct.debt.usedThen.Charge(i, more, at[i])
		}
	}
}

// adoptRules takes the states over to other rules. A charge under way has one number for each rule, by its place and in permits of
// then. If these do not fit the other rules, the next charge has a new id, and permits that were perhaps charged are charged again.
func (acct *account) adoptRules(rules *wire.CompiledRules, at []kernel.Moment) {
	switch {
	case !rules.Set.CountsLike(acct.used.Set):
		acct.chargeID, acct.debt = wire.NewID(), nil
	case acct.debt != nil:
		acct.debt.usedThen.AdoptRules(rules.Set, at)
	}
	acct.rules = rules
	acct.stored.AdoptRules(rules.Set, at)
	acct.used.AdoptRules(rules.Set, at)
}

// owed returns the permits of each rule that were admitted here and that Redis has not charged; false if none are.
func (acct *account) owed(at []kernel.Moment) ([]int64, bool) {
	out, any := make([]int64, len(acct.rules.Set.Rules)), false
	for i, rule := range acct.rules.Set.Rules {
		if rule.Flags&kernel.FlagPermits == 0 {
			out[i] = min(kernel.CeilDiv(max(acct.used.UsedOf(i, at[i])-acct.stored.UsedOf(i, at[i]), 0), acct.nodes), kernel.CostMax)
		}
		any = any || out[i] > 0
	}
	return out, any
}

// openAccount returns the account of a key: the one that is there, or a new one that is not kept yet.
func (s *Share) openAccount(key string, rules *wire.CompiledRules, nodes, now int64) (*account, int64, bool) {
	if acct := s.accounts[key]; acct != nil {
		if acct.latestUS > now && acct.latestUS-now <= lagMaxUS {
			now = acct.latestUS
		}
		at := rules.MomentsAt(now)
		acct.adoptRules(rules, at)
		s.raiseWindows(key, acct, at)
		return acct, now, true
	}
	acct := &account{rules: rules, stored: kernel.NewKeyState(rules.Set), used: kernel.NewKeyState(rules.Set), nodes: nodes, chargeID: wire.NewID()}
	if known := s.reported[key]; known != nil {
		acct.stored = known.KeyState.Clone()
		acct.stored.AdoptRules(rules.Set, rules.MomentsAt(now))
	}
	acct.used = acct.stored.Clone()
	return acct, now, false
}

// raiseWindows raises an account to what Redis reported of its window, of rules that have one. What was admitted here in the window
// before counts a whole window's length, so it hid such a report of at most as much; and ends while that still counts.
func (s *Share) raiseWindows(key string, acct *account, at []kernel.Moment) {
	isFixed := func(r kernel.Rule) bool { return r.Code == kernel.CodeFixedWindow }
	known := s.reported[key]
	if known == nil || !slices.ContainsFunc(acct.rules.Set.Rules, isFixed) {
		return
	}
	usage := kernel.KeyState{Set: known.Set, States: slices.Clone(known.States)}
	usage.AdoptRules(acct.rules.Set, at)
	var reported [kernel.RulesMax]int64
	for i, rule := range acct.rules.Set.Rules {
		reported[i] = notReported
		if isFixed(rule) {
			reported[i] = usage.UsedOf(i, at[i])
		}
	}
	acct.raise(acct.rules, reported, at)
}

// keepAccount keeps a new account if anything is in it; false if there is no place for it.
func (s *Share) keepAccount(key string, acct *account, exists bool) bool {
	if exists {
		s.owing[key] = true
		return true
	}
	if len(s.accounts) >= accountsMax {
		return false
	}
	s.accounts[key], s.owing[key] = acct, true
	return true
}

// RefusedFor is a refusal where nothing is known of the budget.
func RefusedFor(rules *wire.CompiledRules, retry int64) Answer {
	return Answer{Verdict: kernel.Verdict{Retry: retry}, Set: rules.Set}
}

// Decide decides a request by the share among n nodes. It leaves room for the permits that other requests of this key ask Redis for: these may be
// granted as well.
func (s *Share) Decide(req Request, nodes int64) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	acct, now, exists := s.openAccount(req.Key, req.Rules, nodes, req.Now)
	nodes = acct.nodes
	if req.Cost > kernel.CostMax/nodes {
		return RefusedFor(req.Rules, undecidedRetryUS)
	}
	if others := s.asked.of(req.Key); others > 0 && req.Verb != kernel.VerbPeek && !acct.hasRoomBeside(others, req, now) {
		return RefusedFor(req.Rules, askedRetryUS)
	}
	before := acct.used.Clone()
	verdict := acct.decide(req, now)
	if req.Verb != kernel.VerbPeek {
		acct.latestUS = max(now, acct.latestUS)
		if (verdict.Allowed || hasBegun(before, acct.used)) && !s.keepAccount(req.Key, acct, exists) {
			return RefusedFor(req.Rules, undecidedRetryUS)
		}
	}
	if verdict.Retry == kernel.Never && req.fitsEveryRule() {
		verdict.Retry = undecidedRetryUS
	}
	verdict.Granted, verdict.Remaining = verdict.Granted/nodes, verdict.Remaining/nodes
	return Answer{Verdict: verdict, Set: req.Rules.Set, nodes: nodes}
}

// hasRoomBeside reports whether a request is decided alike if Redis grants so many permits more, or refuses them all.
func (acct *account) hasRoomBeside(others int64, req Request, now int64) bool {
	without, with := *acct, *acct
	without.used, with.used = acct.used.Clone(), acct.used.Clone()
	for i, at := range req.Rules.MomentsAt(now) {
		if req.Rules.Set.Rules[i].IsReported() {
			with.used.Charge(i, min(others, with.used.Available(i, at)), at)
		}
	}
	a, b := without.decide(req, now), with.decide(req, now)
	return !a.Allowed || b.Allowed && a.Granted == b.Granted && a.Wait == b.Wait
}

// decide decides a request at an instant on what is in use here: each permit counts n times.
func (acct *account) decide(req Request, now int64) kernel.Verdict {
	r := req.Request
	r.Cost, r.Now, r.Windows = req.Cost*acct.nodes, now, req.Rules.Windows(now)
	verdict := acct.used.Decide(req.Rules.Set, r)
	if part := verdict.Granted % acct.nodes; req.Verb == kernel.VerbAtMost && part > 0 {
		// Only whole permits are taken and granted. The rest of the answer is as it was decided.
		acct.used.Refund(part, acct.rules.MomentsAt(now))
		verdict.Granted -= part
	}
	if req.Verb == kernel.VerbAtMost && verdict.Allowed && verdict.Granted == 0 {
		verdict.Allowed, verdict.Wait, verdict.Retry = false, 0, undecidedRetryUS
	}
	return verdict
}

// hasBegun reports whether a budget has begun to fill.
func hasBegun(before, after kernel.KeyState) bool {
	for i := range after.States {
		if before.States[i] == nil && after.States[i] != nil {
			return true
		}
	}
	return false
}

// fitsEveryRule reports whether a cost is within the whole limit of every rule.
func (req Request) fitsEveryRule() bool {
	return !slices.ContainsFunc(req.Rules.Set.Rules, func(r kernel.Rule) bool { return req.Cost > r.Limit() })
}

// Admit counts what passes under `on_store_failure: allow`, as far as the budget goes.
func (s *Share) Admit(req Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acct, now, exists := s.openAccount(req.Key, req.Rules, 1, req.Now)
	if req.Cost > kernel.CostMax/acct.nodes {
		return
	}
	req.Verb = kernel.VerbAtMost
	if acct.decide(req, now).Allowed {
		acct.latestUS = max(now, acct.latestUS)
		s.keepAccount(req.Key, acct, exists)
	}
}

// OnPermit releases or renews a permit that this process handed out by its share; false if it did not.
func (s *Share) OnPermit(req Request) (Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acct := s.accounts[req.Key]
	if acct == nil || acct.used.HolderOf(req.Permit, req.Now) < 0 {
		return Answer{}, false
	}
	acct.adoptRules(req.Rules, req.Rules.MomentsAt(req.Now))
	return Answer{Verdict: acct.used.Decide(req.Rules.Set, req.Request), Set: req.Rules.Set}, true
}

// DebtFor returns the debt of a key that goes with a request. alone: it has to go by itself, as more has passed here
// since it was made. The caller settles it after the request.
func (s *Share) DebtFor(key string, rules *wire.CompiledRules, now int64) (debt *DebtCharge, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acct := s.accounts[key]
	if acct == nil {
		return nil, false
	}
	at := rules.MomentsAt(now)
	acct.adoptRules(rules, at)
	owed, any := acct.owed(at)
	if acct.debt == nil {
		if !any {
			delete(s.owing, key)
			return nil, false
		}
		acct.debt = &DebtCharge{id: acct.chargeID, owed: owed, usedThen: acct.used.Clone()}
	}
	if acct.debt.perhapsCharged {
		for i := range owed {
			alone = alone || owed[i] > acct.debt.owed[i]
		}
	}
	acct.debt.carriers++
	return acct.debt, alone
}

// Settle takes over what became of a charge, and reports whether the key still owes anything.
func (s *Share) Settle(key string, debt *DebtCharge, rules *wire.CompiledRules, answer Answer, f *wire.Failure, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	acct := s.accounts[key]
	debt.carriers--
	if f != nil && f.Charged {
		debt.perhapsCharged = true
	}
	if acct == nil || acct.debt != debt {
		return false
	}
	at := rules.MomentsAt(now)
	switch {
	case f == nil:
		acct.stored, acct.debt = debt.usedThen.Clone(), nil
		if len(answer.Charged) > 0 && slices.Max(answer.Charged) > 0 {
			acct.chargeID = wire.NewID()
		}
		acct.adoptRules(rules, at)
		for i, rule := range rules.Set.Rules {
			left := debt.owed[i] - min(answer.Charged[i], debt.owed[i])
			if left > 0 && acct.stored.States[i] != nil {
				rule.Rewind(acct.stored.States[i], at[i])
				rule.Refund(acct.stored.States[i], at[i], left*acct.nodes)
			}
		}
	case debt.carriers == 0 && !debt.perhapsCharged:
		acct.debt = nil
	}
	_, any := acct.owed(at)
	return any
}

// Debtors returns up to so many keys that may owe something, with the rules of their accounts.
func (s *Share) Debtors(most int) map[string]*wire.CompiledRules {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*wire.CompiledRules{}
	for key := range s.owing {
		if len(out) == most {
			break
		}
		acct := s.accounts[key]
		if acct == nil {
			delete(s.owing, key)
			continue
		}
		out[key] = acct.rules
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
	for key, acct := range s.accounts {
		if acct.debt != nil || acct.rules.Windows(now) != nil {
			continue
		}
		at := acct.rules.MomentsAt(now)
		_, any := acct.owed(at)
		for i, rule := range acct.rules.Set.Rules {
			any = any || rule.Flags&kernel.FlagPermits != 0 && acct.used.UsedOf(i, at[i]) > 0
		}
		if !any {
			delete(s.accounts, key)
			delete(s.owing, key)
		}
	}
}
