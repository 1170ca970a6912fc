package kernel

// slidingWindow is the primitive of `fixed_window` and the sliding ones: ten buckets and one more. What was admitted counts until
// its bucket no longer overlaps the window, so that no interval of the window's length has more than the limit:
// spec/failure.md, "A window".
type slidingWindow struct {
	most     int64
	spanUS   int64 // of a calendar, its longest
	bucketUS int64 // a tenth, rounded up
	fixed    bool  // what Redis reports counts until its window ends
	calendar bool  // that end is that of the moment
	first    bool  // or a span from now, as a window begins with the first request of a key
}

const (
	windowEpoch    = 0
	windowFirst    = 1
	windowCalendar = 2
	// slots is the number of buckets that may overlap a window.
	slots = 11
)

// longestUS is the longest day, week, month and year, in µs: an hour more where clocks are put back.
var longestUS = [...]int64{25 * hourUS, (7*24 + 1) * hourUS, (31*24 + 1) * hourUS, (366*24 + 1) * hourUS}

const hourUS = 3600 * 1_000_000

// counts has the count of bucket b at b modulo their number, for the newest and those before it; and what Redis reported.
type counts struct {
	newest         int64
	in             [slots]int64
	reported, till int64
}

func (c *counts) Clone() state { d := *c; return &d }

// firstLive returns the first bucket that overlaps (now - span, now] and is remembered.
func (w *slidingWindow) firstLive(c *counts, now int64) int64 {
	return max(c.newest+1-slots, max(now+1-w.spanUS, 0)/w.bucketUS, 0)
}

// timeToEnd returns the µs until a bucket no longer overlaps the window.
func (w *slidingWindow) timeToEnd(bucket, now int64) int64 {
	return max((bucket+1)*w.bucketUS-now+w.spanUS-1, 0)
}

// reportedAt returns what Redis reported, as far as it counts at now.
func (c *counts) reportedAt(now int64) int64 {
	if now < c.till {
		return c.reported
	}
	return 0
}

func (w *slidingWindow) used(s state, at Moment) int64 {
	if s == nil {
		return 0
	}
	c := s.(*counts)
	sum := c.reportedAt(at.Now)
	for b := w.firstLive(c, at.Now); b <= c.newest; b++ {
		sum += c.in[b%slots]
	}
	return sum
}

func (w *slidingWindow) Limit() int64 { return w.most }

func (w *slidingWindow) check(s state, at Moment, cost, _ int64) (bool, int64, int64) {
	if cost > w.most {
		return false, 0, Never
	}
	over := w.used(s, at) + cost - w.most
	if over <= 0 || s == nil {
		return true, 0, 0
	}
	c, retry := s.(*counts), int64(0)
	reported, reportedEnds := c.reportedAt(at.Now), c.till-at.Now
	for b := w.firstLive(c, at.Now); b <= c.newest && over > 0; b++ {
		ends := w.timeToEnd(b, at.Now)
		if reported > 0 && reportedEnds <= ends {
			if over, retry = over-reported, reportedEnds; over <= 0 {
				return false, 0, retry
			}
			reported = 0
		}
		if c.in[b%slots] > 0 {
			over, retry = over-c.in[b%slots], ends
		}
	}
	if over > 0 {
		retry = reportedEnds
	}
	return false, 0, retry
}

func (w *slidingWindow) Charge(s state, at Moment, cost int64, _ PermitID) state {
	bucket := at.Now / w.bucketUS
	c := &counts{newest: bucket}
	if s != nil {
		c = s.(*counts)
		for b := max(c.newest+1, bucket+1-slots); b <= bucket; b++ {
			c.in[b%slots] = 0
		}
		c.newest = max(c.newest, bucket)
	}
	c.in[c.newest%slots] += cost
	return c
}

func (w *slidingWindow) firstSeen(Moment) state { return nil }

func (w *slidingWindow) available(s state, at Moment) int64 { return max(w.most-w.used(s, at), 0) }

func (w *slidingWindow) status(s state, at Moment) (int64, int64) {
	if s == nil {
		return w.most, 0
	}
	c, after := s.(*counts), int64(0)
	if c.reportedAt(at.Now) > 0 {
		after = c.till - at.Now
	}
	for b := w.firstLive(c, at.Now); b <= c.newest; b++ {
		if c.in[b%slots] > 0 {
			after = max(after, w.timeToEnd(b, at.Now))
		}
	}
	return w.available(s, at), after
}

// Refund gives back what counts the longest first.
func (w *slidingWindow) Refund(s state, at Moment, cost int64) int64 {
	c, left := s.(*counts), cost
	for b := c.newest; b >= w.firstLive(c, at.Now); b-- {
		back := min(left, c.in[b%slots])
		c.in[b%slots], left = c.in[b%slots]-back, left-back
	}
	back := min(left, c.reportedAt(at.Now))
	c.reported -= back
	return cost - left + back
}

func (w *slidingWindow) Rewind(s state, at Moment) bool {
	// The newest bucket is that of now, and the others keep their distances less one: where in its bucket the clock was is
	// not known, so none of them may end sooner than it did.
	c, bucket, latest := s.(*counts), at.Now/w.bucketUS, at.Now+w.spanUS
	isLater := c.till > latest
	c.till = min(c.till, latest)
	if bucket >= c.newest {
		return isLater
	}
	earlier, back := counts{newest: bucket, reported: c.reported, till: c.till}, c.newest-bucket-1
	for b := max(c.newest+1-slots, 0); b <= c.newest; b++ {
		earlier.in[min(max(b-back, 0), bucket)%slots] += c.in[b%slots]
	}
	*c = earlier
	return true
}

func (w *slidingWindow) WithUsed(at Moment, used int64) state {
	c := &counts{newest: at.Now / w.bucketUS}
	switch {
	case !w.fixed:
		c.in[c.newest%slots] = used
	case w.calendar:
		c.reported, c.till = used, at.Till
	case w.first:
		c.reported, c.till = used, at.Now+w.spanUS
	default:
		c.reported, c.till = used, at.Now-at.Now%w.spanUS+w.spanUS
	}
	return c
}

// windowOf returns the window of the numbers of a rule; nil if they are out of range: spec/redis.md, "Rules".
func windowOf(code byte, n []float64) *slidingWindow {
	most, spanUS := int64(n[0]), int64(n[1])
	isValid := n[0] >= 1 && n[1] >= 1
	w := &slidingWindow{most: most, spanUS: spanUS}
	switch code {
	case CodeFixedWindow:
		w.fixed, w.calendar, w.first = true, n[1] == windowCalendar, n[1] == windowFirst
		w.spanUS = int64(n[2])
		isValid = n[0] >= 1 && n[1] <= windowCalendar && (n[2] >= 1 || w.calendar)
		if w.calendar {
			if isValid = isValid && InRange(n[3], 0, int64(len(longestUS))-1); isValid {
				w.spanUS = longestUS[int64(n[3])]
			}
		}
	case CodeSlidingWindow:
		isValid = isValid && n[2] >= 1 && n[2] <= n[1] && InRange(n[3], 1, 1000) && float64(int64(n[3])) == n[3]
	case CodeSlidingLog:
		isValid = isValid && n[0] <= 10_000
	default:
		isValid = isValid && InRange(n[0], 1, 1<<32-1) && n[2] >= 1 && n[2] <= n[1] && n[3] >= 1 && n[3] <= n[1]
	}
	if !isValid {
		return nil
	}
	w.bucketUS = CeilDiv(w.spanUS, slots-1)
	return w
}
