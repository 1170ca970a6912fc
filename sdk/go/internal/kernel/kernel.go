// Package kernel is the arithmetic of limits. It decides a request on the states of one key, in the steps of the script in Redis,
// but by three primitives in place of nine algorithms: a level, a window, and holders. None admits more than its algorithm in
// any interval; it may admit less. It serves the local share and the gate in memory.
package kernel

import (
	"hash/fnv"
	"reflect"
	"slices"
)

// Verb is the operation of a request, by its number in a request.
type Verb byte

const (
	VerbCheck   Verb = 1
	VerbReserve Verb = 2
	VerbAtMost  Verb = 3
	VerbPeek    Verb = 4
	VerbRefund  Verb = 5
	VerbReset   Verb = 6
	VerbAcquire Verb = 7
	VerbRelease Verb = 8
	VerbRenew   Verb = 9
	VerbWait    Verb = 14 // an acquire that gets a ticket if it does not pass
	VerbLeave   Verb = 15 // gives a ticket back
)

func (v Verb) String() string {
	return [...]string{"", "check", "reserve", "at_most", "peek", "refund", "reset", "acquire", "release", "renew", VerbWait: "acquire", VerbLeave: "release"}[v]
}

// Never is the retry of a request that can never pass.
const Never int64 = -1

// noWait is the longest wait of a request whose verb has none: only what passes now passes.
const noWait int64 = -1

// PermitID is the hash of a permit's id.
type PermitID [16]byte

// PermitOf is the hash of a permit's id.
func PermitOf(id string) (hash PermitID) {
	h := fnv.New128a()
	h.Write([]byte(id))
	h.Sum(hash[:0])
	return hash
}

// ProcessID is the random number of a process whose requests wait for permits.
type ProcessID [8]byte

// Called is a request that waits for a permit and could pass now.
type Called struct {
	Permit  PermitID
	Process ProcessID
}

// Moment is the instant of a decision in µs, and the calendar window around it for a rule that has one.
type Moment struct {
	Now  int64
	From int64
	Till int64
}

// state is what one rule remembers of a key. nil: nothing.
type state interface{ Clone() state }

// primitive is the arithmetic of one rule. A method that takes a state may be given nil where its comment permits it.
type primitive interface {
	// Limit returns the largest cost that ever passes at once.
	Limit() int64
	// check reports whether a cost passes within maxWait (noWait: the verb has none), and the wait; or else the time
	// until a retry. The state may be nil.
	check(s state, at Moment, cost, maxWait int64) (ok bool, wait, retry int64)
	// Charge returns the state after a cost that passes, and may change the given one. The state may be nil.
	Charge(s state, at Moment, cost int64, id PermitID) state
	// firstSeen returns the state of a key whose first request is refused; nil if nothing is to be remembered.
	firstSeen(at Moment) state
	// available returns the largest cost that would pass now. The state may be nil.
	available(s state, at Moment) int64
	// status returns the permits left and the µs until the budget is full. The state may be nil.
	status(s state, at Moment) (remaining, resetAfter int64)
	// Refund gives permits back to the state, and returns how many.
	Refund(s state, at Moment, cost int64) int64
	// Rewind makes a state of later than now one of now, and reports whether it was.
	Rewind(s state, at Moment) bool
	// used returns the permits in use, rounded up.
	used(s state, at Moment) int64
	// WithUsed returns the state of which so many permits are in use; nil if nothing is to be remembered.
	WithUsed(at Moment, used int64) state
}

// Request is what the kernel and the script decide.
type Request struct {
	Verb    Verb
	Cost    int64
	MaxWait int64 // of reserve, in µs
	Permit  PermitID
	Process ProcessID // of wait and leave
	Now     int64     // in µs since 1970
	Windows []Window  // one for each rule of a calendar, in order
}

// Verdict is what the kernel and the script answer.
type Verdict struct {
	Allowed    bool
	Rule       int
	Granted    int64
	Wait       int64
	Retry      int64 // never, or µs
	Remaining  int64
	ResetAfter int64
}

// Supports reports whether the rules support a verb.
func (s *RuleSet) Supports(v Verb) bool {
	switch v {
	case VerbAcquire, VerbRelease, VerbRenew, VerbLeave:
		return s.handsOut
	case VerbWait:
		return s.hasQueue
	case VerbCheck, VerbReserve, VerbAtMost:
		return !s.handsOut
	default:
		return true
	}
}

// AppendMoments appends the instant of a request for each rule, with its calendar window.
func (s *RuleSet) AppendMoments(at []Moment, r Request) []Moment {
	next := 0
	for i := range s.Rules {
		at = append(at, Moment{Now: r.Now})
		if s.Rules[i].Flags&FlagCalendar == 0 {
			continue
		}
		w := r.Windows[next]
		next++
		at[i].From, at[i].Till = w.From, w.Till
		// The clock that decides may be in the window before or after the one that came along.
		if length := w.Till - w.From; r.Now < w.From {
			at[i].Till = w.From
		} else if r.Now >= w.Till {
			at[i].Till = r.Now + length - (r.Now-w.Till)%length
		}
	}
	return at
}

// KeyState is the states of a key under a rule set.
type KeyState struct {
	Set    *RuleSet
	States []state
}

// Clone returns a copy that shares nothing.
func (k KeyState) Clone() KeyState {
	states := make([]state, len(k.States))
	for i, s := range k.States {
		if s != nil {
			states[i] = s.Clone()
		}
	}
	return KeyState{k.Set, states}
}

// Decide answers a request that the rules support, and changes the states of k as the verb requires: where a change leaves
// every budget full, nothing is remembered any more, unless a full budget is not the same as a new key.
func (k *KeyState) Decide(set *RuleSet, r Request) Verdict {
	var moments [RulesMax]Moment
	at := set.AppendMoments(moments[:0], r)
	work := k.Clone()
	work.AdoptRules(set, at)
	touched := k.Set != set
	for i, s := range work.States {
		if s != nil && set.Rules[i].Rewind(s, at[i]) {
			touched = true
		}
	}
	v, changed, fullAfter := work.answer(r, at)
	if r.Verb == VerbPeek || !touched && !changed {
		return v
	}
	if fullAfter <= 0 && work.fullIsFresh() && (k.Set != set || !reflect.DeepEqual(work.States, k.States)) {
		work = NewKeyState(set)
	}
	*k = work
	return v
}

// NewKeyState is a key that was never seen.
func NewKeyState(set *RuleSet) KeyState { return KeyState{set, make([]state, len(set.Rules))} }

// IsEmpty reports whether nothing is remembered.
func (k KeyState) IsEmpty() bool {
	return !slices.ContainsFunc(k.States, func(s state) bool { return s != nil })
}

// fullIsFresh reports whether full budgets are the same as a new key.
func (k KeyState) fullIsFresh() bool {
	for _, rule := range k.Set.Rules {
		if rule.Flags&flagFullIsFresh == 0 {
			return k.IsEmpty()
		}
	}
	return true
}

// answer decides on states of these rules and of now. It reports whether they have changed, and in how many µs every budget
// is full.
func (k *KeyState) answer(r Request, at []Moment) (v Verdict, changed bool, fullAfter int64) {
	set := k.Set
	granted, refusedBy, retry := r.Cost, -1, int64(0)
	checks := r.Verb <= VerbPeek || r.Verb == VerbAcquire
	switch r.Verb {
	case VerbAcquire:
		if refusedBy = k.HolderOf(r.Permit, r.Now); refusedBy >= 0 {
			retry, checks = Never, false
		}
	case VerbAtMost:
		for i, rule := range set.Rules {
			granted = min(granted, rule.available(k.States[i], at[i]))
		}
		granted = max(granted, 1)
	case VerbRefund:
		granted, changed = k.Refund(r.Cost, at)
	case VerbReset:
		*k, granted, changed = NewKeyState(set), 0, true
	case VerbRelease, VerbRenew:
		if granted, refusedBy = k.endPermit(r, at); refusedBy >= 0 {
			retry = Never
		}
		changed = refusedBy < 0
	}

	wait, slowest := int64(0), -1
	if checks {
		maxWait := noWait
		if r.Verb == VerbReserve {
			maxWait = r.MaxWait
		}
		for i := range set.Rules {
			ok, pause, after := set.Rules[i].check(k.States[i], at[i], granted, maxWait)
			if !ok {
				if refusedBy < 0 || retry != Never && (after == Never || after > retry) {
					refusedBy, retry = i, after
				}
			} else if pause > wait {
				wait, slowest = pause, i
			}
		}
	}

	// Charge nothing until every rule has agreed: a refused request must not spend one budget on its way to being
	// refused by another.
	takes := checks && r.Verb != VerbPeek
	decider := refusedBy
	if decider < 0 {
		decider = slowest
	}
	found := false
	for i := range set.Rules {
		rule := &set.Rules[i]
		if takes && refusedBy < 0 {
			k.States[i], changed = rule.Charge(k.States[i], at[i], granted, r.Permit), true
		} else if takes && k.States[i] == nil {
			k.States[i] = rule.firstSeen(at[i])
			changed = changed || k.States[i] != nil
		}
		left, after := rule.status(k.States[i], at[i])
		if i == decider || decider < 0 && (!found || left < v.Remaining) {
			v.Rule, v.Remaining, v.ResetAfter, found = i, left, after, true
		}
		fullAfter = max(fullAfter, after)
	}
	v.Allowed = refusedBy < 0
	if v.Allowed {
		v.Granted, v.Wait = granted, wait
	} else {
		v.Retry = retry
	}
	return v, changed, fullAfter
}

// Refund gives the cost back to every rule that does not hand out permits. It returns the least that one took back, and
// whether a state has changed.
func (k *KeyState) Refund(cost int64, at []Moment) (granted int64, changed bool) {
	any := false
	for i, rule := range k.Set.Rules {
		if rule.Flags&FlagPermits != 0 {
			continue
		}
		back := int64(0)
		if k.States[i] != nil {
			back, changed = rule.Refund(k.States[i], at[i], cost), true
		}
		if !any || back < granted {
			granted, any = back, true
		}
	}
	return granted, changed
}

// endPermit releases or renews a permit under every rule that hands out permits. It returns the permit's cost, and the
// place of the first such rule if none holds it, or else -1.
func (k *KeyState) endPermit(r Request, at []Moment) (granted int64, refusedBy int) {
	refusedBy, held := -1, false
	for i, rule := range k.Set.Rules {
		p, ok := rule.primitive.(concurrency)
		if !ok {
			continue
		}
		if back, found := p.endOrRenew(k.States[i], r.Now, r.Permit, r.Verb == VerbRenew); found {
			granted, refusedBy, held = back, -1, true
		} else if !held && refusedBy < 0 {
			refusedBy = i
		}
	}
	return granted, refusedBy
}

// AdoptRules takes the states over to other rules, each from the rule of its name.
func (k *KeyState) AdoptRules(set *RuleSet, at []Moment) {
	if k.Set == set {
		return
	}
	old := *k
	if old.Set != nil && set.equals(old.Set) {
		k.Set = set
		return
	}
	*k = KeyState{set, make([]state, len(set.Rules))}
	if old.Set == nil || set.Carry == CarryReset {
		return
	}
	for i, rule := range set.Rules {
		for j, oldRule := range old.Set.Rules {
			if s := old.States[j]; s != nil && oldRule.NameHash == rule.NameHash {
				k.States[i] = carryOver(rule, oldRule, s, at[i], set.Carry)
			}
		}
	}
}

// carryOver converts a state of an old rule to one of a rule of the same name.
func carryOver(rule, old Rule, s state, at Moment, carry Carry) state {
	if rule.Code == old.Code && sameNumbers(rule.Numbers, old.Numbers) {
		return s
	}
	if rule.Flags&FlagPermits != 0 && old.Flags&FlagPermits != 0 {
		rule.Rewind(s, at)
		return s
	}
	used := old.used(s, at)
	if l, ok := rule.primitive.(*level); ok && l.afterwards {
		// Guava's two begin with nothing stored, and keep what is paid afterwards.
		if o, ok := old.primitive.(*level); ok && o.afterwards {
			used -= CeilDiv(o.depth, o.perPermit)
		} else {
			used = 0
		}
		return rule.WithUsed(at, CeilDiv(l.depth, l.perPermit)+max(used, 0))
	}
	if carry == CarryProportional && rule.Flags&FlagPermits == 0 {
		product, left := mulDiv(min(used, UnitsMax), rule.Limit(), old.Limit())
		used = min(product+min(left, 1), UnitsMax)
	}
	return rule.WithUsed(at, used)
}

// UsedOf returns the permits in use of a rule.
func (k KeyState) UsedOf(i int, at Moment) int64 {
	s := k.States[i]
	if s != nil {
		s = s.Clone()
		k.Set.Rules[i].Rewind(s, at)
	}
	return k.Set.Rules[i].used(s, at)
}

// Available returns how many permits of a rule are there.
func (k *KeyState) Available(i int, at Moment) int64 {
	k.rewind(i, at)
	return k.Set.Rules[i].available(k.States[i], at)
}

// Charge has so many more permits of a rule in use, whether they are there or not.
func (k *KeyState) Charge(i int, cost int64, at Moment) {
	if k.rewind(i, at); cost > 0 {
		k.States[i] = k.Set.Rules[i].Charge(k.States[i], at, cost, PermitID{})
	}
}

func (k *KeyState) rewind(i int, at Moment) {
	if k.States[i] != nil {
		k.Set.Rules[i].Rewind(k.States[i], at)
	}
}

// HolderOf returns the place of the first rule under which the permit of an id is held; -1: under none.
func (k *KeyState) HolderOf(id PermitID, now int64) int {
	return slices.IndexFunc(k.States, func(s state) bool {
		h, ok := s.(*holders)
		return ok && h.find(id, now) >= 0
	})
}
