package sluicegate

// flow is what flows per tick and what one permit weighs, of a token bucket or a leaky bucket.
type flow struct {
	tickUS, perTick, perPermit, depth, most int64
	stepped                                 bool
}

// level is units in use as of an instant.
type level struct{ used, at int64 }

func (l *level) clone() state { c := *l; return &c }

// drain gives the level at now. Time that went back carries nothing.
func (f *flow) drain(l level, now int64) level {
	ticks := max(now-l.at, 0) / f.tickUS
	carried := mulSat(ticks, f.perTick)
	if carried >= l.used {
		return level{0, now}
	}
	return level{l.used - carried, l.at + ticks*f.tickUS}
}

// fill gives a drained level with more units in use.
func (f *flow) fill(l level, now, units int64) level {
	if f.tickUS == 1 || f.stepped || l.used >= f.perTick {
		return level{l.used + units, l.at}
	}
	// The running tick will carry more than is in use: of the time that it has run for, only as much counts as
	// emptied the bucket.
	emptied, _ := mulDiv(l.used, f.tickUS, f.perTick)
	return level{l.used + units, max(l.at, now-emptied)}
}

// timeToDrain gives the µs until so many units of a drained level have flowed out, rounded up.
func (f *flow) timeToDrain(units, at, now int64) int64 {
	if units <= 0 {
		return 0
	}
	ticks := ceilDiv(units, f.perTick)
	span := mulSat(ticks-1, f.tickUS) + f.tickUS - max(now-at, 0)
	return min(max(span, 0), spanMaxUS)
}

// takeOver gives a state of an old flow under this one from now on: of what was in use then, `to` units for
// each `from` of the old, rounded up.
func (f *flow) takeOver(s state, now int64, old *flow, to, from int64) *level {
	l := old.drain(*s.(*level), now)
	units, left := mulDiv(l.used, to, from)
	// Permits that come together come when they were due, however many they are by then. Any other part of a
	// tick that was not counted yet counts for nothing when the tick changes.
	inStep := f.stepped && old.stepped && f.tickUS == old.tickUS
	same := f.tickUS == old.tickUS && f.perTick == old.perTick && f.perPermit == old.perPermit && f.stepped == old.stepped
	at := now
	if inStep || same {
		at = l.at
	}
	return &level{min(units+min(left, 1), unitsMax), at}
}

// left gives the permits that are left of a full bucket.
func (f *flow) left(used int64) int64 { return max(f.depth-used, 0) / f.perPermit }

func (f *flow) limit() int64 { return f.most }

// levelOf gives the level of a state at now; of none, what is in use of a new key.
func (f *flow) levelOf(s state, now, fresh int64) level {
	if s == nil {
		return level{fresh, now}
	}
	l := *s.(*level)
	if l.at == now {
		return l
	}
	return f.drain(l, now)
}

func (f *flow) charged(s state, l level, now, cost int64) state {
	l = f.fill(l, now, mulSat(cost, f.perPermit))
	if s == nil {
		return &level{l.used, l.at}
	}
	*s.(*level) = l
	return s
}

func (f *flow) given(s state, l level, cost int64) int64 {
	back := min(mulSat(cost, f.perPermit), l.used)
	*s.(*level) = level{l.used - back, l.at}
	return ceilDiv(back, f.perPermit)
}

func (f *flow) rewind(s state, at moment) bool {
	l := s.(*level)
	if l.at <= at.now {
		return false
	}
	l.at = at.now
	return true
}

func (f *flow) withUsed(at moment, used int64) state {
	return &level{min(mulSat(used, f.perPermit), unitsMax), at.now}
}

// validFlow says whether numbers are of a flow: see the rules in Redis.
func validFlow(f flow) bool {
	return f.tickUS >= 1 && f.perTick >= 1 && f.perPermit >= 1 && f.most >= 1 && f.depth >= f.perPermit &&
		f.tickUS+f.perTick+f.depth+f.most <= unitsMax
}

// tokenBucket is the arithmetic of `token_bucket`.
type tokenBucket struct {
	flow
	spent int64 // units in use of a new key
}

func (b *tokenBucket) at(s state, at moment) level { return b.levelOf(s, at.now, b.spent) }

func (b *tokenBucket) check(s state, at moment, cost, maxWait int64) (bool, int64, int64) {
	if cost > b.most {
		return false, 0, never
	}
	l := b.at(s, at)
	units := cost * b.perPermit
	excess := l.used - b.depth + units
	if excess <= 0 {
		return true, 0, 0
	}
	wait := b.timeToDrain(excess, l.at, at.now)
	// A debt beyond 2^53 units would leave the numbers that are exact everywhere.
	tooDeep := b.timeToDrain(l.used-unitsMax+units, l.at, at.now)
	retry := max(wait-max(maxWait, 0), tooDeep)
	return retry <= 0, wait, retry
}

func (b *tokenBucket) charge(s state, at moment, cost int64, _ permitID) state {
	return b.charged(s, b.at(s, at), at.now, cost)
}

func (b *tokenBucket) firstSeen(at moment) state {
	if b.spent == 0 {
		return nil
	}
	return &level{b.spent, at.now}
}

func (b *tokenBucket) available(s state, at moment) int64 { return b.left(b.at(s, at).used) }

func (b *tokenBucket) status(s state, at moment) (int64, int64) {
	l := b.at(s, at)
	return b.left(l.used), b.timeToDrain(l.used, l.at, at.now)
}

func (b *tokenBucket) refund(s state, at moment, cost int64) int64 {
	return b.given(s, b.at(s, at), cost)
}

func (b *tokenBucket) used(s state, at moment) int64 { return ceilDiv(b.at(s, at).used, b.perPermit) }

func (b *tokenBucket) convert(s state, at moment, old algorithm) state {
	o := &old.(*tokenBucket).flow
	return b.takeOver(s, at.now, o, b.perPermit, o.perPermit)
}

// rescale keeps the same part of a full bucket, to the unit: a permit that has come back in part stays so.
func (b *tokenBucket) rescale(s state, at moment, old algorithm, _ func(int64) int64) state {
	o := &old.(*tokenBucket).flow
	return b.takeOver(s, at.now, o, b.depth, o.depth)
}

// leakyBucket is the arithmetic of `leaky_bucket`.
type leakyBucket struct {
	flow
	delayed bool
	delay   int64 // units above which a request is held back
}

func (b *leakyBucket) at(s state, at moment) level { return b.levelOf(s, at.now, 0) }

func (b *leakyBucket) check(s state, at moment, cost, maxWait int64) (bool, int64, int64) {
	if cost > b.most {
		return false, 0, never
	}
	l := b.at(s, at)
	retry := b.timeToDrain(l.used-b.depth+cost*b.perPermit, l.at, at.now)
	wait := int64(0)
	if b.delayed {
		wait = b.timeToDrain(l.used-b.delay, l.at, at.now)
	}
	if maxWait != noWait {
		retry = max(retry, wait-maxWait)
	}
	return retry <= 0, wait, retry
}

func (b *leakyBucket) charge(s state, at moment, cost int64, _ permitID) state {
	return b.charged(s, b.at(s, at), at.now, cost)
}

func (b *leakyBucket) firstSeen(moment) state { return nil }

func (b *leakyBucket) available(s state, at moment) int64 { return b.left(b.at(s, at).used) }

func (b *leakyBucket) status(s state, at moment) (int64, int64) {
	l := b.at(s, at)
	return b.left(l.used), b.timeToDrain(l.used, l.at, at.now)
}

func (b *leakyBucket) refund(s state, at moment, cost int64) int64 {
	return b.given(s, b.at(s, at), cost)
}

func (b *leakyBucket) used(s state, at moment) int64 { return ceilDiv(b.at(s, at).used, b.perPermit) }

func (b *leakyBucket) convert(s state, at moment, old algorithm) state {
	o := &old.(*leakyBucket).flow
	return b.takeOver(s, at.now, o, b.perPermit, o.perPermit)
}

// rescale keeps the same part of a full bucket, to the unit: a permit that has come back in part stays so.
func (b *leakyBucket) rescale(s state, at moment, old algorithm, _ func(int64) int64) state {
	o := &old.(*leakyBucket).flow
	return b.takeOver(s, at.now, o, b.depth, o.depth)
}
