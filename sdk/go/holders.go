package sluicegate

// concurrency is the primitive of `concurrency`: permits with ids, each held for its time.
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
