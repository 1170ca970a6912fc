package sluicegate

import "math"

// smoothBursty is the arithmetic of Guava's SmoothBursty. Every product is rounded before it is added.
type smoothBursty struct {
	permits, period, maxStored float64
}

type balance struct {
	balance float64 // permits stored; below 0: owed
	at      int64
}

func (b *balance) clone() state { c := *b; return &c }

// roundF64 rounds to the nearest integer, halves up.
func roundF64(x float64) float64 {
	if !(x > -0x1p52 && x < 0x1p52) {
		return x
	}
	return math.Floor(x + 0.5)
}

func (r smoothBursty) balanceAt(s state, now int64, wait float64) float64 {
	if s == nil {
		return 0
	}
	b := s.(*balance)
	elapsed := float64(max(now-b.at, 0)) + wait
	units := roundF64(float64(b.balance*r.period)) + float64(elapsed*r.permits)
	return min(units/r.period, r.maxStored)
}

func (r smoothBursty) timeFor(permits float64) float64 {
	return min(ceilF64(float64(permits*r.period)/r.permits), float64(spanMaxUS))
}

// waitFor gives the µs until the first moment at which the balance is not negative.
func (r smoothBursty) waitFor(s state, now int64) int64 {
	at := r.balanceAt(s, now, 0)
	if at >= 0 {
		return 0
	}
	// Doubles round one way from a debt to a time and another from a time to permits: what the balance will be then
	// is what counts, so that a caller that waits as told is not refused.
	wait := r.timeFor(-at)
	for wait < float64(spanMaxUS) && r.balanceAt(s, now, wait) < 0 {
		wait++
	}
	for r.balanceAt(s, now, wait-1) >= 0 {
		wait--
	}
	return int64(wait)
}

func (r smoothBursty) limit() int64 { return max(capped(math.Floor(r.maxStored), unitsMax), 1) }

func (r smoothBursty) check(s state, at moment, _, maxWait int64) (bool, int64, int64) {
	wait := r.waitFor(s, at.now)
	longest := max(maxWait, 0)
	return wait <= longest, wait, wait - longest
}

func (r smoothBursty) charge(s state, at moment, cost int64, _ permitID) state {
	return &balance{r.balanceAt(s, at.now, 0) - float64(cost), at.now}
}

func (r smoothBursty) firstSeen(moment) state { return nil }

func (r smoothBursty) available(s state, at moment) int64 {
	if r.balanceAt(s, at.now, 0) < 0 {
		return 0
	}
	return unitsMax
}

func (r smoothBursty) status(s state, at moment) (int64, int64) {
	b := r.balanceAt(s, at.now, 0)
	return int64(math.Floor(max(b, 0))), int64(r.timeFor(r.maxStored - b))
}

func (r smoothBursty) refund(s state, at moment, cost int64) int64 {
	before := r.balanceAt(s, at.now, 0)
	refunded := min(before+float64(cost), r.maxStored)
	*s.(*balance) = balance{refunded, at.now}
	// The difference of two doubles may be a little more than what was added.
	return min(int64(ceilF64(refunded-before)), cost)
}

func (r smoothBursty) rewind(s state, at moment) bool {
	b := s.(*balance)
	if b.at <= at.now {
		return false
	}
	b.at = at.now
	return true
}

func (r smoothBursty) used(s state, at moment) int64 {
	return capped(ceilF64(r.maxStored-r.balanceAt(s, at.now, 0)), unitsMax)
}

func (r smoothBursty) withUsed(at moment, used int64) state {
	return &balance{r.maxStored - float64(used), at.now}
}

func (r smoothBursty) convert(s state, at moment, old algorithm) state {
	o := old.(smoothBursty)
	b := o.balanceAt(s, at.now, 0)
	if b >= 0 {
		b = float64(b*r.maxStored) / o.maxStored
	} else {
		b = float64(float64(b*o.period)/o.permits*r.permits) / r.period
	}
	return &balance{b, at.now}
}

// rescale is convert, which keeps the part of a full store to the last bit.
func (r smoothBursty) rescale(s state, at moment, old algorithm, _ func(int64) int64) state {
	return r.convert(s, at, old)
}

// smoothWarmup is the arithmetic of Guava's SmoothWarmingUp.
type smoothWarmup struct {
	stable, threshold, maxStored, slope, cooldown float64
}

type warmth struct {
	stored float64 // permits
	debtUS float64
	at     int64
}

func (w *warmth) clone() state { c := *w; return &c }

func (r smoothWarmup) asOf(s state, now int64) warmth {
	if s == nil {
		return warmth{r.maxStored, 0, now}
	}
	w := s.(*warmth)
	elapsed := float64(max(now-w.at, 0))
	if elapsed < w.debtUS {
		return warmth{w.stored, w.debtUS - elapsed, now}
	}
	stored := w.stored + (elapsed-w.debtUS)/r.cooldown
	return warmth{min(stored, r.maxStored), 0, now}
}

func (r smoothWarmup) interval(above float64) float64 { return r.stable + float64(above*r.slope) }

// timeToHandOut gives the µs that it takes to hand out a cost when so many permits are stored.
func (r smoothWarmup) timeToHandOut(stored, cost float64) float64 {
	fromStored := min(cost, stored)
	above := stored - r.threshold
	if !(above > 0) {
		above = 0
	}
	slow := min(fromStored, above)
	trapezoid := float64(slow*(r.interval(above)+r.interval(above-slow))) / 2
	return trapezoid + float64((fromStored-slow)*r.stable) + float64((cost-fromStored)*r.stable)
}

func (r smoothWarmup) limit() int64 { return max(capped(math.Floor(r.maxStored), depthMax), 1) }

func (r smoothWarmup) check(s state, at moment, _, maxWait int64) (bool, int64, int64) {
	wait := capped(ceilF64(r.asOf(s, at.now).debtUS), spanMaxUS)
	longest := max(maxWait, 0)
	return wait <= longest, wait, wait - longest
}

func (r smoothWarmup) charge(s state, at moment, cost int64, _ permitID) state {
	w := r.asOf(s, at.now)
	c := float64(cost)
	w.debtUS += r.timeToHandOut(w.stored, c)
	w.stored -= min(c, w.stored)
	return &w
}

func (r smoothWarmup) firstSeen(moment) state { return nil }

func (r smoothWarmup) available(s state, at moment) int64 {
	if r.asOf(s, at.now).debtUS > 0 {
		return 0
	}
	return unitsMax
}

func (r smoothWarmup) status(s state, at moment) (int64, int64) {
	w := r.asOf(s, at.now)
	remaining := int64(0)
	if !(w.debtUS > 0) {
		remaining = capped(math.Floor(w.stored), depthMax)
	}
	full := ceilF64(w.debtUS + float64((r.maxStored-w.stored)*r.cooldown))
	return remaining, capped(full, spanMaxUS)
}

func (r smoothWarmup) refund(s state, at moment, cost int64) int64 {
	// A debt is paid first, at the stable interval; what is left is stored.
	w := r.asOf(s, at.now)
	c := float64(cost)
	paid := min(float64(c*r.stable), w.debtUS)
	w.debtUS -= paid
	left := min(c-paid/r.stable, r.maxStored-w.stored)
	if !(left > 0) {
		left = 0
	}
	*s.(*warmth) = warmth{w.stored + left, w.debtUS, at.now}
	return capped(ceilF64(paid/r.stable+left), cost)
}

func (r smoothWarmup) rewind(s state, at moment) bool {
	w := s.(*warmth)
	if w.at <= at.now {
		return false
	}
	w.at = at.now
	return true
}

func (r smoothWarmup) used(s state, at moment) int64 {
	w := r.asOf(s, at.now)
	return capped(ceilF64(r.maxStored-w.stored+w.debtUS/r.stable), unitsMax)
}

func (r smoothWarmup) withUsed(at moment, used int64) state {
	spent := min(float64(used), r.maxStored)
	return &warmth{r.maxStored - spent, float64((float64(used) - spent) * r.stable), at.now}
}

func (r smoothWarmup) convert(s state, at moment, old algorithm) state {
	o := old.(smoothWarmup)
	w := o.asOf(s, at.now)
	w.stored = float64(w.stored*r.maxStored) / o.maxStored
	return &w
}

// rescale is convert, which keeps the part of a full store to the last bit.
func (r smoothWarmup) rescale(s state, at moment, old algorithm, _ func(int64) int64) state {
	return r.convert(s, at, old)
}
