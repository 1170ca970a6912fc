package sluicegate

import (
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
	lifeMS    int64
	calendars []*calendar // of the rules that have one, in order
	windowsUS []int64     // that header fields report for each rule; 0: none
	announced atomic.Int64

	quotasOnce sync.Once
	quotaList  []Quota
}

// zones finds the calendars of the rules, whose zones are named in order.
func (p *plan) zones(names []string) error {
	for _, r := range p.set.rules {
		if r.flags&flagCalendar == 0 {
			continue
		}
		if len(names) == 0 {
			return errBlob
		}
		zone, err := loadZone(names[0])
		if err != nil {
			return err
		}
		p.calendars = append(p.calendars, &calendar{unit: int(r.numbers[3]), zone: zone})
		names = names[1:]
	}
	return nil
}

// windows gives the calendar windows around an instant.
func (p *plan) windows(now int64) []window {
	if len(p.calendars) == 0 {
		return nil
	}
	out := make([]window, len(p.calendars))
	for i, c := range p.calendars {
		out[i] = c.around(now)
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
		found, next := false, 0
		for _, own := range p.set.rules {
			if own.flags&flagCalendar == 0 {
				continue
			}
			if own.numbers[3] == r.numbers[3] && own.numbers[4] == r.numbers[4] {
				out, found = append(out, p.calendars[next].around(now)), true
				break
			}
			next++
		}
		if !found {
			return nil, false
		}
	}
	return out, true
}

// ofPolicy makes the plan of a policy's rules that were taken over at an instant.
func ofPolicy(policy string, set *ruleSet, zones []string, instantMS int64) (*plan, error) {
	p := &plan{policy: policy, set: set, rules: set.bytes(), lifeMS: set.lifeMS()}
	p.head = policyHead(p.rules, instantMS)
	p.blob = blobOf(p.rules, generationLen, p.head)
	p.sent = p.blob
	p.rulesKey = rulesKey(policy, p.head[:generationLen])
	for _, r := range set.rules {
		p.windowsUS = append(p.windowsUS, r.windowUS())
	}
	return p, p.zones(zones)
}

// since is the same rules, in force since another instant.
func (p *plan) since(instantMS int64) *plan {
	later := &plan{
		policy: p.policy, set: p.set, rules: p.rules, rulesKey: p.rulesKey, lifeMS: p.lifeMS,
		windowsUS: p.windowsUS, calendars: p.calendars,
	}
	later.head = policyHead(p.rules, instantMS)
	later.blob = blobOf(p.rules, generationLen, later.head)
	later.sent = later.blob
	return later
}

// limitPrefix comes before the name of a limit made in code, where its states are: no policy is called so.
const limitPrefix = "limit:"

// ofCaller makes the plan of a limit made in code, which needs no place in Redis.
func ofCaller(name string, set *ruleSet, zones []string) (*plan, error) {
	p, err := ofPolicy(limitPrefix+name, set, zones, 0)
	p.head = callerHead(set)
	p.blob, p.rulesKey = blobOf(p.rules, 0, p.head), ""
	p.sent = p.blob
	return p, err
}

// zonesOf gives the names of the zones of rules with a calendar, in order.
func zonesOf(rules []Rule) (names []string) {
	for _, r := range rules {
		if r.calendar {
			names = append(names, r.zone)
		}
	}
	return names
}

// announceEvery is how often rules are put again where other programs look for them.
const announceEvery = 10 * time.Minute
