package sluicegate

import "reflect"

// The kernel decides a request on the states of one key, in the steps of the script in Redis, but by three primitives in
// place of nine algorithms: a level, a window, and holders. None admits more than its algorithm in any interval; it may
// admit less. It serves the local share and the gate in memory.

// verb is what a request asks for, by its number in a request.
type verb byte

const (
	verbCheck   verb = 1
	verbReserve verb = 2
	verbAtMost  verb = 3
	verbPeek    verb = 4
	verbRefund  verb = 5
	verbReset   verb = 6
	verbAcquire verb = 7
	verbRelease verb = 8
	verbRenew   verb = 9
)

func (v verb) String() string {
	return [...]string{"", "check", "reserve", "at_most", "peek", "refund", "reset", "acquire", "release", "renew"}[v]
}

// never is the retry of a request that can never pass.
const never int64 = -1

// noWait as the longest wait of a request says that the verb has none: only what passes now passes.
const noWait int64 = -1

// permitID is the hash of a permit's id.
type permitID [16]byte

// moment is the instant of a decision in µs, and the calendar window around it for a rule that has one.
type moment struct {
	now  int64
	from int64
	till int64
}

// state is what one rule remembers of a key. nil: nothing.
type state interface{ clone() state }

// primitive is the arithmetic of one rule. A method that takes a state may be given nil where its comment says so.
type primitive interface {
	// limit gives the largest cost that ever passes at once.
	limit() int64
	// check gives whether a cost passes within maxWait (noWait: the verb has none), and the wait; or else the time
	// until a retry. The state may be nil.
	check(s state, at moment, cost, maxWait int64) (ok bool, wait, retry int64)
	// charge gives the state after a cost that passes, and may change the given one. The state may be nil.
	charge(s state, at moment, cost int64, id permitID) state
	// firstSeen gives the state of a key whose first request is refused; nil if nothing is to be remembered.
	firstSeen(at moment) state
	// available gives the largest cost that would pass now. The state may be nil.
	available(s state, at moment) int64
	// status gives the permits left and the µs until the budget is full. The state may be nil.
	status(s state, at moment) (remaining, resetAfter int64)
	// refund gives permits back to the state, and says how many.
	refund(s state, at moment, cost int64) int64
	// rewind makes a state of later than now one of now, and says whether it was.
	rewind(s state, at moment) bool
	// used gives the permits in use, rounded up.
	used(s state, at moment) int64
	// withUsed gives the state of which so many permits are in use; nil if nothing is to be remembered.
	withUsed(at moment, used int64) state
}

// permits is what a rule that hands out permits can do besides.
type permits interface {
	holds(s state, at moment, id permitID) bool
	// release and renew give the cost of a permit; false if it is not held.
	release(s state, at moment, id permitID) (int64, bool)
	renew(s state, at moment, id permitID) (int64, bool)
}

// request is what the kernel and the script decide.
type request struct {
	verb    verb
	cost    int64
	maxWait int64 // of reserve, in µs
	permit  permitID
	now     int64    // in µs since 1970
	windows []window // one for each rule of a calendar, in order
}

// verdict is what the kernel and the script answer.
type verdict struct {
	allowed    bool
	rule       int
	granted    int64
	wait       int64
	retry      int64 // never, or µs
	remaining  int64
	resetAfter int64
}

// supports says whether the rules know a verb.
func (s *ruleSet) supports(v verb) bool {
	switch v {
	case verbAcquire, verbRelease, verbRenew:
		return s.handsOut
	case verbCheck, verbReserve, verbAtMost:
		return !s.handsOut
	default:
		return true
	}
}

// moments gives the instant of a request for each rule, with its calendar window.
func (s *ruleSet) moments(r request) []moment { return s.appendMoments(nil, r) }

// appendMoments is moments in memory of the caller's.
func (s *ruleSet) appendMoments(at []moment, r request) []moment {
	next := 0
	for i := range s.rules {
		at = append(at, moment{now: r.now})
		if s.rules[i].flags&flagCalendar == 0 {
			continue
		}
		w := r.windows[next]
		next++
		at[i].from, at[i].till = w.from, w.till
		// The clock that decides may be in the window before or after the one that came along.
		if length := w.till - w.from; r.now < w.from {
			at[i].till = w.from
		} else if r.now >= w.till {
			at[i].till = r.now + length - (r.now-w.till)%length
		}
	}
	return at
}

// life is the states of a key under a rule set.
type life struct {
	set    *ruleSet
	states []state
}

func (l life) clone() life {
	states := make([]state, len(l.states))
	for i, s := range l.states {
		if s != nil {
			states[i] = s.clone()
		}
	}
	return life{l.set, states}
}

// decide answers a request that the rules support, and changes the states of l as the verb says: where a change leaves
// every budget full, nothing is remembered any more, unless a full budget is not the same as a new key.
func (l *life) decide(set *ruleSet, r request) verdict {
	var moments [rulesMax]moment
	at := set.appendMoments(moments[:0], r)
	work := l.clone()
	work.turnTo(set, at)
	touched := l.set != set
	for i, s := range work.states {
		if s != nil && set.rules[i].rewind(s, at[i]) {
			touched = true
		}
	}
	v, changed, fullAfter := work.answer(r, at)
	if r.verb == verbPeek || !touched && !changed {
		return v
	}
	if fullAfter <= 0 && work.fullIsFresh() && (l.set != set || !reflect.DeepEqual(work.states, l.states)) {
		work = emptyLife(set)
	}
	*l = work
	return v
}

// emptyLife is a key that was never seen.
func emptyLife(set *ruleSet) life { return life{set, make([]state, len(set.rules))} }

// isEmpty says whether nothing is remembered.
func (l life) isEmpty() bool {
	for _, s := range l.states {
		if s != nil {
			return false
		}
	}
	return true
}

// fullIsFresh says whether full budgets are the same as a new key.
func (l life) fullIsFresh() bool {
	for _, rule := range l.set.rules {
		if rule.flags&flagFullIsFresh == 0 {
			return l.isEmpty()
		}
	}
	return true
}

// answer decides on states of these rules and of now. It says whether they have changed, and in how many µs every budget
// is full.
func (l *life) answer(r request, at []moment) (v verdict, changed bool, fullAfter int64) {
	set := l.set
	granted, refusedBy, retry := r.cost, -1, int64(0)
	asks := r.verb <= verbPeek || r.verb == verbAcquire
	switch r.verb {
	case verbAcquire:
		for i := len(set.rules) - 1; i >= 0; i-- {
			p, ok := set.rules[i].primitive.(permits)
			if ok && l.states[i] != nil && p.holds(l.states[i], at[i], r.permit) {
				refusedBy, retry, asks = i, never, false
			}
		}
	case verbAtMost:
		for i, rule := range set.rules {
			granted = min(granted, rule.available(l.states[i], at[i]))
		}
		granted = max(granted, 1)
	case verbRefund:
		granted, changed = l.refund(r.cost, at)
	case verbReset:
		*l, granted, changed = emptyLife(set), 0, true
	case verbRelease, verbRenew:
		if granted, refusedBy = l.onPermit(r, at); refusedBy >= 0 {
			retry = never
		}
		changed = refusedBy < 0
	}

	wait, slowest := int64(0), -1
	if asks {
		maxWait := noWait
		if r.verb == verbReserve {
			maxWait = r.maxWait
		}
		for i := range set.rules {
			ok, pause, after := set.rules[i].check(l.states[i], at[i], granted, maxWait)
			if !ok {
				if refusedBy < 0 || retry != never && (after == never || after > retry) {
					refusedBy, retry = i, after
				}
			} else if pause > wait {
				wait, slowest = pause, i
			}
		}
	}

	// Nothing is charged until every rule has agreed: a refused request must not spend one budget on its way to being
	// refused by another.
	takes := asks && r.verb != verbPeek
	decider := refusedBy
	if decider < 0 {
		decider = slowest
	}
	found := false
	for i := range set.rules {
		rule := &set.rules[i]
		if takes && refusedBy < 0 {
			l.states[i], changed = rule.charge(l.states[i], at[i], granted, r.permit), true
		} else if takes && l.states[i] == nil {
			l.states[i] = rule.firstSeen(at[i])
			changed = changed || l.states[i] != nil
		}
		left, after := rule.status(l.states[i], at[i])
		if i == decider || decider < 0 && (!found || left < v.remaining) {
			v.rule, v.remaining, v.resetAfter, found = i, left, after, true
		}
		fullAfter = max(fullAfter, after)
	}
	v.allowed = refusedBy < 0
	if v.allowed {
		v.granted, v.wait = granted, wait
	} else {
		v.retry = retry
	}
	return v, changed, fullAfter
}

// refund gives the cost back to every rule that does not hand out permits. It gives the least that one took back, and
// says whether a state has changed.
func (l *life) refund(cost int64, at []moment) (granted int64, changed bool) {
	any := false
	for i, rule := range l.set.rules {
		if rule.flags&flagPermits != 0 {
			continue
		}
		back := int64(0)
		if l.states[i] != nil {
			back, changed = rule.refund(l.states[i], at[i], cost), true
		}
		if !any || back < granted {
			granted, any = back, true
		}
	}
	return granted, changed
}

// onPermit releases or renews a permit under every rule that hands out permits. It gives the permit's cost, and the
// place of the first such rule if none holds it, or else -1.
func (l *life) onPermit(r request, at []moment) (granted int64, refusedBy int) {
	refusedBy, held := -1, false
	for i, rule := range l.set.rules {
		p, ok := rule.primitive.(permits)
		if !ok {
			continue
		}
		var back int64
		found := false
		if l.states[i] != nil && r.verb == verbRelease {
			back, found = p.release(l.states[i], at[i], r.permit)
		} else if l.states[i] != nil {
			back, found = p.renew(l.states[i], at[i], r.permit)
		}
		if found {
			granted, refusedBy, held = back, -1, true
		} else if !held && refusedBy < 0 {
			refusedBy = i
		}
	}
	return granted, refusedBy
}

// turnTo takes the states over to other rules, each from the rule of its name.
func (l *life) turnTo(set *ruleSet, at []moment) {
	if l.set == set {
		return
	}
	old := *l
	*l = life{set, make([]state, len(set.rules))}
	if old.set == nil || set.carry == carryReset {
		return
	}
	for i, rule := range set.rules {
		for j, oldRule := range old.set.rules {
			if s := old.states[j]; s != nil && oldRule.nameHash == rule.nameHash {
				l.states[i] = carried(rule, oldRule, s, at[i], set.carry)
			}
		}
	}
}

// carried converts a state of an old rule to one of a rule of the same name.
func carried(rule, old rule, s state, at moment, carry carry) state {
	if rule.code == old.code && sameNumbers(rule.numbers, old.numbers) {
		return s
	}
	if rule.flags&flagPermits != 0 && old.flags&flagPermits != 0 {
		rule.rewind(s, at)
		return s
	}
	used := old.used(s, at)
	if l, ok := rule.primitive.(*level); ok && l.afterwards {
		// Guava's two begin with nothing stored, and keep what is paid afterwards.
		if o, ok := old.primitive.(*level); ok && o.afterwards {
			used -= ceilDiv(o.depth, o.perPermit)
		} else {
			used = 0
		}
		return rule.withUsed(at, ceilDiv(l.depth, l.perPermit)+max(used, 0))
	}
	if carry == carryProportional && rule.flags&flagPermits == 0 {
		product, left := mulDiv(min(used, unitsMax), rule.limit(), old.limit())
		used = min(product+min(left, 1), unitsMax)
	}
	return rule.withUsed(at, used)
}
