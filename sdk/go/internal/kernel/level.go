package kernel

// level is the primitive of `token_bucket`, `leaky_bucket` and Guava's two: what is in use drains at a steady rate. Its
// numbers are units, of which one permit weighs perPermit, so that nothing is rounded: spec/failure.md, "A level".
type level struct {
	tickUS, perTick, perPermit int64 // units that drain each tick, and those of a permit
	depth                      int64 // units of a full bucket
	most                       int64 // the largest cost that passes at once
	stepped                    bool  // ticks are those of a clock that all keys share
	fresh                      int64 // units in use of a new key
	delays                     bool  // a request within depth passes, and waits for what is above free
	free                       int64
	afterwards                 bool // a request of any cost passes when no more than depth is in use: the next one waits
}

// filled is units in use as of an instant.
type filled struct{ used, at int64 }

func (f *filled) Clone() state { c := *f; return &c }

// at returns what is in use at now; of a new key that is fresh. Time that went back drains nothing.
func (l *level) at(s state, now int64) filled {
	if s == nil {
		return filled{l.fresh, now}
	}
	f := *s.(*filled)
	ticks := max(now-f.at, 0) / l.tickUS
	if drained := mulSat(ticks, l.perTick); drained < f.used {
		return filled{f.used - drained, f.at + ticks*l.tickUS}
	}
	return filled{0, now}
}

// timeUntil returns the µs until so many units have drained, rounded up.
func (l *level) timeUntil(units, at, now int64) int64 {
	if units <= 0 {
		return 0
	}
	span := mulSat(CeilDiv(units, l.perTick)-1, l.tickUS) + l.tickUS - max(now-at, 0)
	return min(max(span, 0), SpanMaxUS)
}

func (l *level) Limit() int64 { return l.most }

func (l *level) check(s state, at Moment, cost, maxWait int64) (bool, int64, int64) {
	if cost > l.most && !l.afterwards {
		return false, 0, Never
	}
	f, units := l.at(s, at.Now), mulSat(cost, l.perPermit)
	// Above 2^53 units the numbers would not be exact everywhere.
	retry := l.timeUntil(f.used+units-UnitsMax, f.at, at.Now)
	if l.delays {
		retry = max(retry, l.timeUntil(f.used+units-l.depth, f.at, at.Now))
		wait := l.timeUntil(f.used-l.free, f.at, at.Now)
		if maxWait != noWait {
			retry = max(retry, wait-maxWait)
		}
		return retry <= 0, wait, retry
	}
	over := f.used - l.depth
	if !l.afterwards {
		over += units
	}
	wait := l.timeUntil(over, f.at, at.Now)
	retry = max(retry, wait-max(maxWait, 0))
	return retry <= 0, wait, retry
}

func (l *level) Charge(s state, at Moment, cost int64, _ PermitID) state {
	f := l.at(s, at.Now)
	if l.tickUS > 1 && !l.stepped && f.used < l.perTick {
		// The running tick will drain more than is in use: of the time that it has run for, only as much counts as
		// emptied the bucket.
		emptied, _ := mulDiv(f.used, l.tickUS, l.perTick)
		f.at = max(f.at, at.Now-emptied)
	}
	return &filled{min(f.used+mulSat(cost, l.perPermit), UnitsMax), f.at}
}

func (l *level) firstSeen(at Moment) state {
	if l.fresh == 0 || l.afterwards {
		return nil
	}
	return &filled{l.fresh, at.Now}
}

func (l *level) available(s state, at Moment) int64 {
	f := l.at(s, at.Now)
	if l.afterwards && f.used <= l.depth {
		return UnitsMax
	}
	return max(l.depth-f.used, 0) / l.perPermit
}

func (l *level) status(s state, at Moment) (int64, int64) {
	f := l.at(s, at.Now)
	return max(l.depth-f.used, 0) / l.perPermit, l.timeUntil(f.used, f.at, at.Now)
}

func (l *level) Refund(s state, at Moment, cost int64) int64 {
	f := l.at(s, at.Now)
	back := min(mulSat(cost, l.perPermit), f.used)
	*s.(*filled) = filled{f.used - back, f.at}
	return CeilDiv(back, l.perPermit)
}

func (l *level) Rewind(s state, at Moment) bool {
	f := s.(*filled)
	if f.at <= at.Now {
		return false
	}
	f.at = at.Now
	return true
}

func (l *level) used(s state, at Moment) int64 { return CeilDiv(l.at(s, at.Now).used, l.perPermit) }

func (l *level) WithUsed(at Moment, used int64) state {
	return &filled{min(mulSat(used, l.perPermit), UnitsMax), at.Now}
}

// levelOf returns the level of the numbers of a rule; nil if they are out of range: spec/redis.md, "Rules".
func levelOf(code byte, n []float64) *level {
	i := func(place int) int64 { return int64(n[place]) }
	switch code {
	case CodeTokenBucket, CodeLeakyBucket:
		l := &level{tickUS: i(0), perTick: i(1), perPermit: i(2), depth: i(3), most: i(4), stepped: n[6] == 1}
		isValid := l.tickUS >= 1 && l.perTick >= 1 && l.perPermit >= 1 && l.most >= 1 && l.depth >= l.perPermit &&
			l.tickUS+l.perTick+l.depth+l.most <= UnitsMax
		if code == CodeTokenBucket {
			l.fresh = i(5)
			isValid = isValid && l.fresh <= l.depth && n[6] <= 1
		} else {
			l.delays, l.free = true, l.depth
			if n[5] == 1 {
				l.free = i(7)
			}
			isValid = isValid && n[5] <= 1 && n[6] == 0 && i(7) <= l.depth
		}
		if isValid {
			return l
		}
	case CodeSmoothBursty:
		if n[0] >= 1 && n[1] >= 1 && n[2] > 0 && n[0]+n[1]+n[2] <= float64(UnitsMax) {
			depth := capped(n[2]*n[1], depthMax)
			return &level{tickUS: 1, perTick: i(0), perPermit: i(1), depth: depth, most: max(capped(n[2], depthMax), 1), fresh: depth, afterwards: true}
		}
	case CodeSmoothWarmup:
		if n[0] > 0 && n[1] > 0 && n[2] > n[1] && n[3] > 0 && n[4] > 0 && n[0]+n[2]+n[3]+n[4] <= largest {
			// A permit weighs what drains in the time between two, rounded up.
			weight := max(capped(ceilF64(n[0]*smoothTicks), depthMax), 1)
			return &level{tickUS: 1, perTick: smoothTicks, perPermit: weight, most: max(capped(n[2], depthMax), 1), afterwards: true}
		}
	}
	return nil
}

// smoothTicks are the units that drain each µs where the time between two permits is a double.
const smoothTicks = 1024
