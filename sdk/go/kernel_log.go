package sluicegate

// slidingLog is the arithmetic of `sliding_log`.
type slidingLog struct{ most, windowUS int64 }

type entry struct{ at, cost int64 }

// log has what was granted, oldest first.
type log struct {
	sum     int64
	entries []entry
}

func (l *log) clone() state { return &log{l.sum, append([]entry(nil), l.entries...)} }

// firstLive gives the place of the first entry that counts, and the costs of those before it.
func (r slidingLog) firstLive(l *log, now int64) (place int, gone int64) {
	for place < len(l.entries) && l.entries[place].at+r.windowUS <= now {
		gone += l.entries[place].cost
		place++
	}
	return place, gone
}

func (r slidingLog) forgetGone(l *log, now int64) {
	place, gone := r.firstLive(l, now)
	l.entries, l.sum = l.entries[place:], l.sum-gone
}

func (r slidingLog) sumAt(s state, now int64) int64 {
	if s == nil {
		return 0
	}
	_, gone := r.firstLive(s.(*log), now)
	return s.(*log).sum - gone
}

func (r slidingLog) limit() int64 { return r.most }

func (r slidingLog) check(s state, at moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, never
	}
	wanted := r.sumAt(s, at.now) + cost
	if wanted <= r.most || s == nil {
		return true, 0, 0
	}
	l, retry := s.(*log), int64(0)
	place, _ := r.firstLive(l, at.now)
	for ; place < len(l.entries) && wanted > r.most; place++ {
		wanted -= l.entries[place].cost
		retry = l.entries[place].at + r.windowUS - at.now
	}
	return false, 0, retry
}

func (r slidingLog) charge(s state, at moment, cost int64, _ permitID) state {
	l := &log{}
	if s != nil {
		l = s.(*log)
	}
	r.forgetGone(l, at.now)
	l.entries, l.sum = append(l.entries, entry{at.now, cost}), l.sum+cost
	return l
}

func (r slidingLog) firstSeen(moment) state { return nil }

func (r slidingLog) available(s state, at moment) int64 { return max(r.most-r.sumAt(s, at.now), 0) }

func (r slidingLog) status(s state, at moment) (int64, int64) {
	after := int64(0)
	if s != nil {
		if l := s.(*log); len(l.entries) > 0 {
			after = l.entries[len(l.entries)-1].at + r.windowUS - at.now
		}
	}
	return max(r.most-r.sumAt(s, at.now), 0), max(after, 0)
}

func (r slidingLog) refund(s state, at moment, cost int64) int64 {
	// The newest entries give first: they would have counted the longest.
	l, left := s.(*log), cost
	r.forgetGone(l, at.now)
	for left > 0 && len(l.entries) > 0 {
		last := &l.entries[len(l.entries)-1]
		back := min(last.cost, left)
		left -= back
		last.cost -= back
		if last.cost == 0 {
			l.entries = l.entries[:len(l.entries)-1]
		}
	}
	l.sum -= cost - left
	return cost - left
}

func (r slidingLog) rewind(s state, at moment) bool {
	// What was granted later than now was granted now.
	l, moved := s.(*log), false
	for i := len(l.entries) - 1; i >= 0 && l.entries[i].at > at.now; i-- {
		l.entries[i].at, moved = at.now, true
	}
	return moved
}

func (r slidingLog) used(s state, at moment) int64 { return r.sumAt(s, at.now) }

func (r slidingLog) withUsed(at moment, used int64) state {
	used = min(used, r.most)
	if used == 0 {
		return &log{}
	}
	return &log{used, []entry{{at.now, used}}}
}

func (r slidingLog) convert(s state, at moment, old algorithm) state {
	// Entries are facts: they hold under any limit and window.
	old.(slidingLog).forgetGone(s.(*log), at.now)
	return s
}

func (r slidingLog) rescale(s state, _ moment, old algorithm, scaled func(int64) int64) state {
	// Sums are scaled, from the newest entry on: so at every later instant the sum of those that still count is
	// rounded once. What is more than the limit counts as all of it.
	if r.windowUS != old.(slidingLog).windowUS {
		return nil
	}
	l := s.(*log)
	var kept []entry
	sum, before := int64(0), int64(0)
	for i := len(l.entries) - 1; i >= 0; i-- {
		sum += l.entries[i].cost
		after := min(scaled(sum), r.most)
		if after > before {
			kept = append(kept, entry{l.entries[i].at, after - before})
		}
		before = after
	}
	for i, j := 0, len(kept)-1; i < j; i, j = i+1, j-1 {
		kept[i], kept[j] = kept[j], kept[i]
	}
	return &log{before, kept}
}

// concurrency is the arithmetic of `concurrency`.
type concurrency struct{ most, ttlUS int64 }

type holder struct {
	id     permitID
	lapses int64
	cost   int64
}

// holders has the permits that are held, in the order of their ends.
type holders struct {
	sum  int64
	list []holder
}

func (h *holders) clone() state { return &holders{h.sum, append([]holder(nil), h.list...)} }

func (h *holders) firstHeld(now int64) (place int, lapsed int64) {
	for place < len(h.list) && h.list[place].lapses <= now {
		lapsed += h.list[place].cost
		place++
	}
	return place, lapsed
}

func (h *holders) forgetLapsed(now int64) {
	place, lapsed := h.firstHeld(now)
	h.list, h.sum = h.list[place:], h.sum-lapsed
}

func (h *holders) add(id permitID, lapses, cost int64) {
	h.list, h.sum = append(h.list, holder{id, lapses, cost}), h.sum+cost
}

// take removes a permit that is held and gives its cost.
func (h *holders) take(id permitID, now int64) (int64, bool) {
	for i, held := range h.list {
		if held.id == id && held.lapses > now {
			h.list, h.sum = append(h.list[:i:i], h.list[i+1:]...), h.sum-held.cost
			return held.cost, true
		}
	}
	return 0, false
}

func (h *holders) latest() int64 {
	if len(h.list) == 0 {
		return 0
	}
	return h.list[len(h.list)-1].lapses
}

func (r concurrency) heldAt(s state, now int64) int64 {
	if s == nil {
		return 0
	}
	_, lapsed := s.(*holders).firstHeld(now)
	return s.(*holders).sum - lapsed
}

func (r concurrency) limit() int64 { return r.most }

func (r concurrency) check(s state, at moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, never
	}
	excess := r.heldAt(s, at.now) + cost - r.most
	if s == nil || excess <= 0 {
		return true, 0, 0
	}
	h, retry := s.(*holders), int64(0)
	place, _ := h.firstHeld(at.now)
	for ; place < len(h.list) && excess > 0; place++ {
		excess -= h.list[place].cost
		retry = h.list[place].lapses - at.now
	}
	return false, 0, retry
}

func (r concurrency) charge(s state, at moment, cost int64, id permitID) state {
	h := &holders{}
	if s != nil {
		h = s.(*holders)
	}
	h.forgetLapsed(at.now)
	h.add(id, at.now+r.ttlUS, cost)
	return h
}

func (r concurrency) firstSeen(moment) state { return nil }

func (r concurrency) available(s state, at moment) int64 { return max(r.most-r.heldAt(s, at.now), 0) }

func (r concurrency) status(s state, at moment) (int64, int64) {
	after := int64(0)
	if s != nil {
		after = max(s.(*holders).latest()-at.now, 0)
	}
	return max(r.most-r.heldAt(s, at.now), 0), after
}

// refund gives nothing: a permit is given back with release, by its id.
func (r concurrency) refund(state, moment, int64) int64 { return 0 }

func (r concurrency) rewind(s state, at moment) bool {
	// No permit lasts longer than ttl from now.
	h, last, moved := s.(*holders), at.now+r.ttlUS, false
	for i := len(h.list) - 1; i >= 0 && h.list[i].lapses > last; i-- {
		h.list[i].lapses, moved = last, true
	}
	return moved
}

func (r concurrency) used(s state, at moment) int64 { return r.heldAt(s, at.now) }

// withUsed remembers nothing: usage of another algorithm is nobody's permit.
func (r concurrency) withUsed(moment, int64) state { return nil }

func (r concurrency) convert(s state, at moment, _ algorithm) state {
	r.rewind(s, at)
	return s
}

func (r concurrency) rescale(state, moment, algorithm, func(int64) int64) state { return nil }

func (r concurrency) holds(s state, at moment, id permitID) bool {
	for _, h := range s.(*holders).list {
		if h.id == id && h.lapses > at.now {
			return true
		}
	}
	return false
}

func (r concurrency) release(s state, at moment, id permitID) (int64, bool) {
	h := s.(*holders)
	cost, ok := h.take(id, at.now)
	if ok {
		h.forgetLapsed(at.now)
	}
	return cost, ok
}

func (r concurrency) renew(s state, at moment, id permitID) (int64, bool) {
	h := s.(*holders)
	cost, ok := h.take(id, at.now)
	if ok {
		h.add(id, at.now+r.ttlUS, cost)
	}
	return cost, ok
}
