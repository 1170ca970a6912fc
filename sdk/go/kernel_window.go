package sluicegate

import "math"

// fixedWindow is the arithmetic of `fixed_window`. A calendar's window comes with the moment.
type fixedWindow struct {
	most   int64
	kind   int64
	spanUS int64
	window [4]float64 // what tells the windows of one rule from those of another
}

const (
	windowEpoch    = 0
	windowFirst    = 1
	windowCalendar = 2
)

type counted struct{ count, till int64 }

func (c *counted) clone() state { d := *c; return &d }

func (r fixedWindow) end(s state, at moment) int64 {
	switch {
	case r.kind == windowEpoch:
		return at.now - at.now%r.spanUS + r.spanUS
	case r.kind == windowCalendar:
		return at.till
	}
	if s != nil {
		if c := s.(*counted); at.now < c.till && c.count > 0 {
			return c.till
		}
	}
	return at.now + r.spanUS
}

func (r fixedWindow) countAt(s state, now int64) int64 {
	if s == nil {
		return 0
	}
	if c := s.(*counted); now < c.till {
		return c.count
	}
	return 0
}

func (r fixedWindow) limit() int64 { return r.most }

func (r fixedWindow) check(s state, at moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, never
	}
	if r.countAt(s, at.now)+cost <= r.most {
		return true, 0, 0
	}
	return false, 0, r.end(s, at) - at.now
}

func (r fixedWindow) charge(s state, at moment, cost int64, _ permitID) state {
	return &counted{r.countAt(s, at.now) + cost, r.end(s, at)}
}

func (r fixedWindow) firstSeen(moment) state { return nil }

func (r fixedWindow) available(s state, at moment) int64 { return max(r.most-r.countAt(s, at.now), 0) }

func (r fixedWindow) status(s state, at moment) (int64, int64) {
	count, after := r.countAt(s, at.now), int64(0)
	if count > 0 {
		after = r.end(s, at) - at.now
	}
	return max(r.most-count, 0), after
}

func (r fixedWindow) refund(s state, at moment, cost int64) int64 {
	back := min(r.countAt(s, at.now), cost)
	s.(*counted).count -= back
	return back
}

func (r fixedWindow) rewind(s state, at moment) bool {
	till := r.end(nil, at)
	c := s.(*counted)
	if c.till <= till {
		return false
	}
	c.till = till
	return true
}

func (r fixedWindow) used(s state, at moment) int64 { return r.countAt(s, at.now) }

func (r fixedWindow) withUsed(at moment, used int64) state { return &counted{used, r.end(nil, at)} }

func (r fixedWindow) convert(s state, at moment, old algorithm) state {
	o := old.(fixedWindow)
	if r.window == o.window {
		return s
	}
	return &counted{o.countAt(s, at.now), r.end(nil, at)}
}

func (r fixedWindow) rescale(s state, _ moment, old algorithm, scaled func(int64) int64) state {
	if r.window != old.(fixedWindow).window {
		return nil
	}
	c := s.(*counted)
	return &counted{scaled(c.count), c.till}
}

// slidingWindow is the arithmetic of `sliding_window`: one counter more than a window has buckets.
type slidingWindow struct {
	most, windowUS, bucketUS, slots int64
}

// buckets has the count of bucket b at b modulo their number, for the newest and those before it.
type buckets struct {
	newest int64
	counts []int64
}

func (b *buckets) clone() state { return &buckets{b.newest, append([]int64(nil), b.counts...)} }

// oldest gives the first bucket that overlaps (now - window, now].
func (r slidingWindow) oldest(now int64) int64 { return max(now+1-r.windowUS, 0) / r.bucketUS }

// timeToEnd gives the µs until a bucket no longer overlaps the window.
func (r slidingWindow) timeToEnd(bucket, now int64) int64 {
	return max((bucket+1)*r.bucketUS-now+r.windowUS-1, 0)
}

func (r slidingWindow) remembered(b *buckets) int64 { return max(b.newest+1-r.slots, 0) }

func (r slidingWindow) firstLive(b *buckets, now int64) int64 {
	return max(r.remembered(b), r.oldest(now))
}

func (r slidingWindow) sumAt(s state, now int64) (sum int64) {
	if s == nil {
		return 0
	}
	b := s.(*buckets)
	for i := r.firstLive(b, now); i <= b.newest; i++ {
		sum += b.counts[i%r.slots]
	}
	return sum
}

func (r slidingWindow) empty(now int64) *buckets {
	return &buckets{now / r.bucketUS, make([]int64, r.slots)}
}

func (r slidingWindow) limit() int64 { return r.most }

func (r slidingWindow) check(s state, at moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, never
	}
	wanted := r.sumAt(s, at.now) + cost
	if wanted <= r.most || s == nil {
		return true, 0, 0
	}
	b, retry := s.(*buckets), int64(0)
	for i := r.firstLive(b, at.now); i <= b.newest && wanted > r.most; i++ {
		wanted -= b.counts[i%r.slots]
		retry = r.timeToEnd(i, at.now)
	}
	return false, 0, retry
}

func (r slidingWindow) charge(s state, at moment, cost int64, _ permitID) state {
	b := r.empty(at.now)
	if s != nil {
		bucket := b.newest
		b = s.(*buckets)
		for pushed := int64(0); pushed < min(bucket-b.newest, r.slots); pushed++ {
			b.counts[(bucket-pushed)%r.slots] = 0
		}
		b.newest = max(b.newest, bucket)
	}
	b.counts[b.newest%r.slots] += cost
	return b
}

func (r slidingWindow) firstSeen(moment) state { return nil }

func (r slidingWindow) available(s state, at moment) int64 { return max(r.most-r.sumAt(s, at.now), 0) }

func (r slidingWindow) status(s state, at moment) (int64, int64) {
	after := int64(0)
	if s != nil {
		b := s.(*buckets)
		for i := b.newest; i >= r.remembered(b); i-- {
			if b.counts[i%r.slots] > 0 {
				after = r.timeToEnd(i, at.now)
				break
			}
		}
	}
	return max(r.most-r.sumAt(s, at.now), 0), after
}

func (r slidingWindow) refund(s state, at moment, cost int64) int64 {
	// The newest counters give first: they would have been held the longest.
	b, left := s.(*buckets), cost
	for i := b.newest; i >= r.firstLive(b, at.now); i-- {
		back := min(left, b.counts[i%r.slots])
		b.counts[i%r.slots] -= back
		left -= back
	}
	return cost - left
}

func (r slidingWindow) rewind(s state, at moment) bool {
	// The newest counter is now, and the others keep their distances less one: where in its bucket the clock was is
	// not known, so none of them may end sooner than it did.
	b, earlier := s.(*buckets), r.empty(at.now)
	if earlier.newest >= b.newest {
		return false
	}
	back := b.newest - earlier.newest - 1
	for old := r.remembered(b); old <= b.newest; old++ {
		moved := min(max(old-back, 0), earlier.newest)
		earlier.counts[moved%r.slots] += b.counts[old%r.slots]
	}
	*b = *earlier
	return true
}

func (r slidingWindow) used(s state, at moment) int64 { return r.sumAt(s, at.now) }

func (r slidingWindow) withUsed(at moment, used int64) state {
	b := r.empty(at.now)
	b.counts[b.newest%r.slots] = used
	return b
}

func (r slidingWindow) convert(s state, at moment, old algorithm) state {
	// The same buckets keep their counts; others take the sum over as if it were granted now.
	o := old.(slidingWindow)
	if r.windowUS == o.windowUS && r.slots == o.slots {
		return s
	}
	return r.withUsed(at, o.sumAt(s, at.now))
}

func (r slidingWindow) rescale(s state, _ moment, old algorithm, scaled func(int64) int64) state {
	// Sums are scaled, from the newest bucket on: so at every later instant the sum of those that still count is
	// rounded once.
	o := old.(slidingWindow)
	if r.windowUS != o.windowUS || r.slots != o.slots {
		return nil
	}
	b := s.(*buckets)
	counts, sum, before := make([]int64, r.slots), int64(0), int64(0)
	for i := b.newest; i >= r.remembered(b); i-- {
		if count := b.counts[i%r.slots]; count > 0 {
			sum += count
			after := scaled(sum)
			counts[i%r.slots], before = after-before, after
		}
	}
	return &buckets{b.newest, counts}
}

// slidingCounter is the arithmetic of `sliding_counter`: an estimate of two counters.
type slidingCounter struct {
	most, windowUS, stepUS, steps int64
	// weighedMax is what a counter weighs at most: at least most. After a higher limit it may have counted more than
	// can be weighed exactly.
	weighedMax int64
}

func newSlidingCounter(limit, windowUS, stepUS, steps int64) slidingCounter {
	// The limit is more only where rules that were read say steps that no limit and window give.
	return slidingCounter{limit, windowUS, stepUS, steps, max(unitsMax/4/steps, limit)}
}

type twoCounts struct{ window, previous, current int64 }

func (c *twoCounts) clone() state { d := *c; return &d }

// view gives the counters as they stand in the window that is running now, and how much of it is over.
func (r slidingCounter) view(s state, now int64) (c twoCounts, elapsed int64) {
	elapsed, c.window = now%r.windowUS, now/r.windowUS
	if s == nil {
		return c, elapsed
	}
	old := s.(*twoCounts)
	switch {
	case c.window < old.window:
		// Time went back: what later windows counted belongs to the one that is running.
		c.current = min(old.previous+old.current, max(r.most, old.previous, old.current))
	case c.window == old.window:
		c = *old
	case c.window == old.window+1:
		c.previous = old.current
	}
	return c, elapsed
}

// counter gives a count that has 32 bits.
func counter(count int64) int64 { return min(count, math.MaxUint32) }

// estimate gives the estimate times steps: how many steps of the previous window still count is rounded up.
func (r slidingCounter) estimate(c twoCounts, elapsed int64) int64 {
	weight := min(ceilDiv(r.windowUS-elapsed, r.stepUS), r.steps)
	return min(c.previous, r.weighedMax)*weight + min(c.current, r.weighedMax)*r.steps
}

func (r slidingCounter) free(c twoCounts, elapsed int64) int64 {
	return max(r.most*r.steps-r.estimate(c, elapsed), 0) / r.steps
}

// elapsedUntil gives the first elapsed time of a window at which previous weighs little enough for room.
func (r slidingCounter) elapsedUntil(previous, room int64) int64 {
	if previous == 0 {
		return 0
	}
	weight := room * r.steps / min(previous, r.weighedMax)
	if weight < r.steps {
		return r.windowUS - weight*r.stepUS
	}
	return 0
}

func (r slidingCounter) limit() int64 { return r.most }

func (r slidingCounter) check(s state, at moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, never
	}
	c, elapsed := r.view(s, at.now)
	if cost <= r.free(c, elapsed) {
		return true, 0, 0
	}
	var until int64
	if room := r.most - c.current - cost; room >= 0 {
		until = r.elapsedUntil(c.previous, room)
	} else {
		// Only when this window has become the previous one.
		until = r.windowUS + r.elapsedUntil(c.current, r.most-cost)
	}
	return false, 0, max(until-elapsed, 0)
}

func (r slidingCounter) charge(s state, at moment, cost int64, _ permitID) state {
	c, _ := r.view(s, at.now)
	c.current = counter(c.current + cost)
	return &c
}

func (r slidingCounter) firstSeen(moment) state { return nil }

func (r slidingCounter) available(s state, at moment) int64 {
	return r.free(r.view(s, at.now))
}

func (r slidingCounter) status(s state, at moment) (int64, int64) {
	c, elapsed := r.view(s, at.now)
	full := int64(0)
	if c.current > 0 {
		full = 2 * r.windowUS
	} else if c.previous > 0 {
		full = r.windowUS
	}
	return r.free(c, elapsed), max(full-elapsed, 0)
}

func (r slidingCounter) refund(s state, at moment, cost int64) int64 {
	// The running window gives first: it would have counted the longest.
	c, _ := r.view(s, at.now)
	fromCurrent := min(c.current, cost)
	fromPrevious := min(c.previous, cost-fromCurrent)
	*s.(*twoCounts) = twoCounts{c.window, c.previous - fromPrevious, c.current - fromCurrent}
	return fromCurrent + fromPrevious
}

func (r slidingCounter) rewind(s state, at moment) bool {
	c, _ := r.view(s, at.now)
	if c.window >= s.(*twoCounts).window {
		return false
	}
	*s.(*twoCounts) = c
	return true
}

func (r slidingCounter) used(s state, at moment) int64 {
	return ceilDiv(r.estimate(r.view(s, at.now)), r.steps)
}

func (r slidingCounter) withUsed(at moment, used int64) state {
	return &twoCounts{at.now / r.windowUS, 0, counter(used)}
}

// convert keeps both counters of the same window; another takes the estimate over.
func (r slidingCounter) convert(s state, at moment, old algorithm) state {
	o := old.(slidingCounter)
	if r.windowUS != o.windowUS {
		return r.withUsed(at, o.used(s, at))
	}
	return s
}

func (r slidingCounter) rescale(s state, _ moment, old algorithm, scaled func(int64) int64) state {
	if r.windowUS != old.(slidingCounter).windowUS {
		return nil
	}
	// Their sum is rounded once: the older one gets what the newer one leaves of it.
	c := s.(*twoCounts)
	current := scaled(c.current)
	previous := scaled(c.previous+c.current) - current
	return &twoCounts{c.window, counter(previous), counter(current)}
}
