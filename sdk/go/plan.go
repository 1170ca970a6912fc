package sluicegate

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// plan is the rules of a policy, of one of its overrides, or of a limit made in code, ready to be sent.
type plan struct {
	policy    string // by which states are found: the policy's name, or `limit:` and that of a limit made in code
	set       *ruleSet
	rules     []byte // as they are stored at rulesKey
	blob      []byte // as they are sent
	sent      any    // the same, as an argument of a command
	head      []byte // with which states begin
	rulesKey  string // where they are announced; "" for a limit made in code, which its states bring along
	lifeMS    int64  // of a policy: how long a state under these rules is of use at most
	announced atomic.Int64

	quotasOnce sync.Once
	quotaList  []Quota
}

// windows gives the calendar windows around an instant.
func (p *plan) windows(now int64) (out []window) {
	for i := range p.set.rules {
		if c := p.set.rules[i].calendar; c != nil {
			out = append(out, c.around(now))
		}
	}
	return out
}

// windowsFor gives the windows for other rules; false if those have a calendar that these rules have not.
func (p *plan) windowsFor(other *ruleSet, now int64) ([]window, bool) {
	var out []window
	for _, r := range other.rules {
		if r.flags&flagCalendar == 0 {
			continue
		}
		own := slices.IndexFunc(p.set.rules, func(own rule) bool {
			return own.calendar != nil && own.numbers[3] == r.numbers[3] && own.numbers[4] == r.numbers[4]
		})
		if own < 0 {
			return nil, false
		}
		out = append(out, p.set.rules[own].calendar.around(now))
	}
	return out, true
}

// ofPolicy makes the plan of a policy's rules that were taken over at an instant.
func ofPolicy(policy string, set *ruleSet, instantMS int64) *plan {
	p := &plan{policy: policy, set: set, rules: set.bytes()}
	p.rulesKey = rulesKey(policy, generationOf(p.rules))
	p.beginWith(policyHead(p.rules, instantMS), generationLen)
	return p
}

// since gives the same rules, taken over at another instant.
func (p *plan) since(instantMS int64) *plan {
	later := &plan{policy: p.policy, set: p.set, rules: p.rules, rulesKey: p.rulesKey, lifeMS: p.lifeMS}
	later.beginWith(policyHead(p.rules, instantMS), generationLen)
	return later
}

// limitPrefix comes before the name of a limit made in code, where its states are: no policy is called so.
const limitPrefix = "limit:"

// ofCaller makes the plan of a limit made in code, which needs no place in Redis.
func ofCaller(name string, set *ruleSet) *plan {
	p := &plan{policy: limitPrefix + name, set: set, rules: set.bytes()}
	p.beginWith(callerHead(set), 0)
	return p
}

// beginWith sets the head of states, whose first own bytes tell the rules from others; 0: all of it.
func (p *plan) beginWith(head []byte, own byte) {
	p.head, p.blob = head, blobOf(p.rules, own, head)
	p.sent = p.blob
}

// announceEvery is how often rules are put again where other programs look for them.
const announceEvery = 10 * time.Minute
