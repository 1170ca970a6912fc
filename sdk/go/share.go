package sluicegate

import "sync"

const (
	// notesMax bounds the keys of which this process remembers what Redis last said.
	notesMax = 1_000_000
	// accountsMax bounds the keys that are decided here while Redis does not answer: it is what may be owed.
	accountsMax = 250_000
	// behindUS is how long a decision by the share may come after a later one and be decided at its instant.
	behindUS = 1_000_000
	// olderUS is how long after one answer another that says less may be an older one.
	olderUS = 2_000_000
	// laterUS is when a request may pass that nobody here can decide: when Redis is back.
	laterUS = 1_000_000
)

// share decides by this process' part of a limit while Redis does not answer, and keeps what is owed for it.
type share struct {
	mu       sync.Mutex
	notes    map[string]*note
	accounts map[string]*account
	owing    map[string]bool // keys of accounts that may owe something
}

// note is what Redis last said of a key.
type note struct {
	life
	raised []int64 // when it last said of each rule, by its place, as much as was known, or more
}

// account is what was decided here for a key.
type account struct {
	plan   *plan
	stored life // what Redis knows
	used   life // the same, and what was admitted here
	n      int64
	bill   *bill
	billID string // of its bills, until something is charged
	latest int64
}

func newShare() *share {
	return &share{notes: map[string]*note{}, accounts: map[string]*account{}, owing: map[string]bool{}}
}

func (p *plan) momentsAt(now int64) []moment {
	return p.set.moments(request{now: now, windows: p.windows(now)})
}

// usedOf gives the permits in use of a rule of l.
func (l life) usedOf(i int, at moment) int64 {
	s := l.states[i]
	if s != nil {
		s = s.clone()
		l.set.rules[i].rewind(s, at)
	}
	return l.set.rules[i].used(s, at)
}

// learn takes over what a decision of Redis says of each rule.
func (s *share) learn(key string, p *plan, a answer, now int64) {
	said := a.inUse(p.set)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notes[key]
	if n == nil {
		for other := range s.notes {
			if len(s.notes) < notesMax {
				break
			}
			delete(s.notes, other)
		}
		n = &note{life: emptyLife(p.set)}
		s.notes[key] = n
	}
	var moments [rulesMax]moment
	at := p.set.appendMoments(moments[:0], request{now: now, windows: p.windows(now)})
	n.turnTo(p.set, at)
	for len(n.raised) < len(at) {
		n.raised = append(n.raised, now-olderUS)
	}
	for i := range at {
		if rule := &p.set.rules[i]; said[i] != notSaid && rule.isReported() {
			n.say(i, said[i], at[i])
		}
	}
	if account := s.accounts[key]; account != nil {
		account.raise(p, said, at)
	}
}

// say puts down what Redis says is in use of a rule.
func (n *note) say(i int, said int64, at moment) {
	rule, known, since := &n.set.rules[i], n.usedOf(i, at), at.now-n.raised[i]
	switch {
	case said >= known:
		n.states[i], n.raised[i] = rule.withUsed(at, said), at.now
	case max(since, -since) >= olderUS:
		n.states[i] = rule.withUsed(at, said)
	case rule.code != codeTokenBucket && rule.code != codeLeakyBucket:
		n.states[i] = rule.withUsed(at, known)
	}
}

// raise brings both states up to what Redis says is in use of each rule, as far as there is room for it here.
func (c *account) raise(p *plan, said [rulesMax]int64, at []moment) {
	c.turn(p, at)
	for i := range at {
		rule := &p.set.rules[i]
		if !rule.isReported() {
			continue
		}
		more := said[i] - c.stored.usedOf(i, at[i])
		if more <= 0 {
			continue
		}
		more = c.used.charge(i, more, at[i])
		c.stored.charge(i, more, at[i])
		if c.bill != nil {
			// When the bill is paid, what Redis knows is this.
			c.bill.upTo.turnTo(p.set, at)
			c.bill.upTo.charge(i, more, at[i])
		}
	}
}

// charge has so many permits of a rule in use, as far as they are there, and says how many.
func (l *life) charge(i int, cost int64, at moment) int64 {
	rule := &l.set.rules[i]
	if l.states[i] != nil {
		rule.rewind(l.states[i], at)
	}
	cost = min(cost, rule.available(l.states[i], at), CostMax)
	if cost > 0 {
		l.states[i] = rule.charge(l.states[i], at, cost, permitID{})
	}
	return cost
}

// turn takes both states over to the rules of a plan.
func (c *account) turn(p *plan, at []moment) {
	c.plan = p
	c.stored.turnTo(p.set, at)
	c.used.turnTo(p.set, at)
}

// owed gives the permits of each rule that were admitted here and that Redis does not know; false if none are.
func (c *account) owed(at []moment) ([]int64, bool) {
	out, any := make([]int64, len(c.plan.set.rules)), false
	for i, rule := range c.plan.set.rules {
		if rule.flags&flagPermits == 0 {
			out[i] = min(ceilDiv(max(c.used.usedOf(i, at[i])-c.stored.usedOf(i, at[i]), 0), c.n), CostMax)
		}
		any = any || out[i] > 0
	}
	return out, any
}

// open gives the account of a key: the one that is there, or a new one that is not kept yet.
func (s *share) open(key string, p *plan, n, now int64) (*account, int64, bool) {
	if c := s.accounts[key]; c != nil {
		if c.latest > now && c.latest-now <= behindUS {
			now = c.latest
		}
		c.turn(p, p.momentsAt(now))
		return c, now, true
	}
	c := &account{plan: p, stored: emptyLife(p.set), used: emptyLife(p.set), n: n, billID: newBillID()}
	if known := s.notes[key]; known != nil {
		c.stored = known.life.clone()
		c.stored.turnTo(p.set, p.momentsAt(now))
	}
	c.used = c.stored.clone()
	return c, now, false
}

// keep keeps a new account if it says anything; false if there is no place for it.
func (s *share) keep(key string, c *account, there bool) bool {
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

// refusedFor is a refusal where nothing is known of the budget.
func refusedFor(p *plan, retry int64) answer {
	return answer{verdict: verdict{retry: retry}, set: p.set}
}

// decide decides a request by the share among n nodes.
func (s *share) decide(q question, n int64) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now, there := s.open(q.key, q.plan, n, q.now)
	n = c.n
	if q.cost > CostMax/n {
		return refusedFor(q.plan, laterUS)
	}
	before := c.used.clone()
	v := c.take(q, now)
	if q.verb != verbPeek {
		c.latest = max(now, c.latest)
		if (v.allowed || began(before, c.used)) && !s.keep(q.key, c, there) {
			return refusedFor(q.plan, laterUS)
		}
	}
	if v.retry == never && q.fitsEvery() {
		v.retry = laterUS
	}
	v.granted, v.remaining = v.granted/n, v.remaining/n
	return answer{verdict: v, set: divided(q.plan.set, n)}
}

// take decides a request at an instant on what is in use here: each permit counts n times.
func (c *account) take(q question, now int64) verdict {
	r := q.request
	r.cost, r.now, r.windows = q.cost*c.n, now, q.plan.windows(now)
	v := c.used.decide(q.plan.set, r)
	if part := v.granted % c.n; q.verb == verbAtMost && part > 0 {
		// Only whole permits are taken and granted. The rest of the answer is as it was decided.
		c.used.refund(part, c.plan.momentsAt(now))
		v.granted -= part
	}
	if q.verb == verbAtMost && v.allowed && v.granted == 0 {
		v.allowed, v.wait, v.retry = false, 0, laterUS
	}
	return v
}

// began says whether a budget has begun to fill.
func began(before, after life) bool {
	for i := range after.states {
		if before.states[i] == nil && after.states[i] != nil {
			return true
		}
	}
	return false
}

// fitsEvery says whether a cost is within the whole limit of every rule.
func (q question) fitsEvery() bool {
	for _, r := range q.plan.set.rules {
		if q.cost > r.limit() {
			return false
		}
	}
	return true
}

// divided gives rules whose limits are reported as the part of one of n nodes.
func divided(set *ruleSet, n int64) *ruleSet {
	if n == 1 {
		return set
	}
	out := *set
	out.rules = append([]rule(nil), set.rules...)
	for i := range out.rules {
		out.rules[i].primitive = part{out.rules[i].primitive, n}
	}
	return &out
}

// part is a primitive of whose limit one of n nodes has its part.
type part struct {
	primitive
	n int64
}

func (p part) limit() int64 { return p.primitive.limit() / p.n }

// admit notes what passes under `on_store_failure: allow`, as far as the budget goes.
func (s *share) admit(q question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now, there := s.open(q.key, q.plan, 1, q.now)
	if q.cost > CostMax/c.n {
		return
	}
	q.verb = verbAtMost
	if c.take(q, now).allowed {
		c.latest = max(now, c.latest)
		s.keep(q.key, c, there)
	}
}

// onPermit releases or renews a permit that this process handed out by its share; false if it did not.
func (s *share) onPermit(q question) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[q.key]
	if c == nil {
		return answer{}, false
	}
	at := q.plan.momentsAt(q.now)
	for i, rule := range c.used.set.rules {
		held, ok := rule.primitive.(permits)
		if !ok || c.used.states[i] == nil || i >= len(at) || !held.holds(c.used.states[i], moment{now: q.now}, q.permit) {
			continue
		}
		c.turn(q.plan, at)
		v := c.used.decide(q.plan.set, q.request)
		return answer{verdict: v, set: q.plan.set}, true
	}
	return answer{}, false
}

// billFor gives the debt of a key that goes with a question. alone: it has to go by itself, as more has passed here
// since it was made. The caller settles it after the question.
func (s *share) billFor(key string, p *plan, now int64) (b *bill, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[key]
	if c == nil {
		return nil, false
	}
	at := p.momentsAt(now)
	if c.bill == nil || c.used.set != p.set {
		c.turn(p, at)
	}
	owed, any := c.owed(at)
	if c.bill == nil {
		if !any {
			delete(s.owing, key)
			return nil, false
		}
		c.bill = &bill{id: c.billID, owed: owed, upTo: c.used.clone()}
	} else if len(c.bill.owed) != len(owed) {
		// Other rules came in between: what they owe is not what the bill says any more.
		c.billID = newBillID()
		c.bill = &bill{id: c.billID, owed: owed, upTo: c.used.clone()}
	}
	if c.bill.doubt {
		for i := range owed {
			alone = alone || owed[i] > c.bill.owed[i]
		}
	}
	c.bill.users++
	return c.bill, alone
}

// settle takes over what became of a bill, and says whether the key still owes anything.
func (s *share) settle(key string, b *bill, p *plan, a answer, f *failure, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.accounts[key]
	b.users--
	if f != nil && f.charged {
		b.doubt = true
	}
	if c == nil || c.bill != b {
		return false
	}
	at := p.momentsAt(now)
	switch {
	case f == nil:
		c.stored, c.bill = b.upTo.clone(), nil
		for _, charged := range a.charged {
			if charged > 0 {
				c.billID = newBillID()
				break
			}
		}
		c.turn(p, at)
		for i, rule := range p.set.rules {
			left := b.owed[i] - min(a.charged[i], b.owed[i])
			if left > 0 && c.stored.states[i] != nil {
				rule.rewind(c.stored.states[i], at[i])
				rule.refund(c.stored.states[i], at[i], left*c.n)
			}
		}
	case b.users == 0 && !b.doubt:
		c.bill = nil
	}
	_, any := c.owed(at)
	return any
}

// debtors gives up to so many keys that may owe something, with the rules of their accounts.
func (s *share) debtors(most int) map[string]*plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*plan{}
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

// forget drops the account of a key.
func (s *share) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, key)
	delete(s.owing, key)
}

// sweep makes room: accounts go that owe nothing, hold no permit and have neither a bill nor a calendar.
func (s *share) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.accounts {
		if c.bill != nil || c.plan.windows(now) != nil {
			continue
		}
		at := c.plan.momentsAt(now)
		_, any := c.owed(at)
		for i, rule := range c.plan.set.rules {
			any = any || rule.flags&flagPermits != 0 && c.used.usedOf(i, at[i]) > 0
		}
		if !any {
			delete(s.accounts, key)
			delete(s.owing, key)
		}
	}
}
