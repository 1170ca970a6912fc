package kernel

import "slices"

// concurrency is the primitive of `concurrency`: permits with ids, each held for its time.
type concurrency struct{ most, ttlUS int64 }

type holder struct {
	id     PermitID
	lapses int64
	cost   int64
}

// holders has the permits that are held, in the order of their ends.
type holders struct {
	sum  int64
	list []holder
}

func (h *holders) Clone() state { return &holders{h.sum, append([]holder(nil), h.list...)} }

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

func (h *holders) add(id PermitID, lapses, cost int64) {
	h.list, h.sum = append(h.list, holder{id, lapses, cost}), h.sum+cost
}

// find returns the place of a permit that is held; -1: it is not.
func (h *holders) find(id PermitID, now int64) int {
	return slices.IndexFunc(h.list, func(held holder) bool { return held.id == id && held.lapses > now })
}

func (r concurrency) heldAt(s state, now int64) int64 {
	if s == nil {
		return 0
	}
	_, lapsed := s.(*holders).firstHeld(now)
	return s.(*holders).sum - lapsed
}

func (r concurrency) Limit() int64 { return r.most }

func (r concurrency) check(s state, at Moment, cost, _ int64) (bool, int64, int64) {
	if cost > r.most {
		return false, 0, Never
	}
	excess := r.heldAt(s, at.Now) + cost - r.most
	if s == nil || excess <= 0 {
		return true, 0, 0
	}
	h, retry := s.(*holders), int64(0)
	place, _ := h.firstHeld(at.Now)
	for ; place < len(h.list) && excess > 0; place++ {
		excess -= h.list[place].cost
		retry = h.list[place].lapses - at.Now
	}
	return false, 0, retry
}

func (r concurrency) Charge(s state, at Moment, cost int64, id PermitID) state {
	h := &holders{}
	if s != nil {
		h = s.(*holders)
	}
	h.forgetLapsed(at.Now)
	h.add(id, at.Now+r.ttlUS, cost)
	return h
}

func (r concurrency) firstSeen(Moment) state { return nil }

func (r concurrency) available(s state, at Moment) int64 { return max(r.most-r.heldAt(s, at.Now), 0) }

func (r concurrency) status(s state, at Moment) (int64, int64) {
	after := int64(0)
	if h, ok := s.(*holders); ok && len(h.list) > 0 {
		after = max(h.list[len(h.list)-1].lapses-at.Now, 0)
	}
	return r.available(s, at), after
}

// Refund returns nothing: a permit is given back with release, by its id.
func (r concurrency) Refund(state, Moment, int64) int64 { return 0 }

func (r concurrency) Rewind(s state, at Moment) bool {
	// No permit lasts longer than ttl from now.
	h, last, moved := s.(*holders), at.Now+r.ttlUS, false
	for i := len(h.list) - 1; i >= 0 && h.list[i].lapses > last; i-- {
		h.list[i].lapses, moved = last, true
	}
	return moved
}

func (r concurrency) used(s state, at Moment) int64 { return r.heldAt(s, at.Now) }

// WithUsed remembers nothing: usage of another algorithm has no ids of permits.
func (r concurrency) WithUsed(Moment, int64) state { return nil }

// endOrRenew takes back a permit that is held, or holds it for another ttl, and returns its cost; false if it is not held. The state may
// be nil.
func (r concurrency) endOrRenew(s state, now int64, id PermitID, renew bool) (cost int64, ok bool) {
	h, ok := s.(*holders)
	if !ok {
		return 0, false
	}
	i := h.find(id, now)
	if i < 0 {
		return 0, false
	}
	cost = h.list[i].cost
	h.list, h.sum = slices.Delete(h.list, i, i+1), h.sum-cost
	if renew {
		h.add(id, now+r.ttlUS, cost)
	} else {
		h.forgetLapsed(now)
	}
	return cost, true
}
