package wire

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// Plan is the rules of a policy, of one of its overrides, or of a limit made in code, ready to be sent.
type Plan struct {
	Policy    string // by which states are found: the policy's name, or `limit:` and that of a limit made in code
	Set       *kernel.RuleSet
	Rules     []byte // as they are stored at rulesKey
	Blob      []byte // as they are sent
	Sent      any    // the same, as an argument of a command
	Head      []byte // with which states begin
	RulesKey  string // where they are announced; "" for a limit made in code, which its states bring along
	TTLMS     int64  // of a policy: the longest time that a state under these rules is needed
	Announced atomic.Int64

	derivedOnce sync.Once
	derived     any
}

// Windows returns the calendar windows around an instant.
func (p *Plan) Windows(now int64) (out []kernel.Window) {
	for i := range p.Set.Rules {
		if c := p.Set.Rules[i].Calendar; c != nil {
			out = append(out, c.Around(now))
		}
	}
	return out
}

var errCalendar = errors.New("later rules have a calendar that this program does not know")

// WindowsFor returns the windows for other rules; an error if those have a calendar that these rules have not.
func (p *Plan) WindowsFor(other *kernel.RuleSet, now int64) ([]kernel.Window, error) {
	var out []kernel.Window
	for _, r := range other.Rules {
		if r.Flags&kernel.FlagCalendar == 0 {
			continue
		}
		own := slices.IndexFunc(p.Set.Rules, func(own kernel.Rule) bool {
			return own.Calendar != nil && own.Numbers[3] == r.Numbers[3] && own.Numbers[4] == r.Numbers[4]
		})
		if own < 0 {
			return nil, errCalendar
		}
		out = append(out, p.Set.Rules[own].Calendar.Around(now))
	}
	return out, nil
}

// MomentsAt returns an instant for each rule.
func (p *Plan) MomentsAt(now int64) []kernel.Moment {
	return p.Set.AppendMoments(nil, kernel.Request{Now: now, Windows: p.Windows(now)})
}

// PlanOf makes the plan of a policy's rules that were taken over at an instant.
func PlanOf(policy string, set *kernel.RuleSet, instantMS int64) *Plan {
	p := &Plan{Policy: policy, Set: set, Rules: set.Bytes()}
	p.RulesKey = RulesKey(policy, GenerationOf(p.Rules))
	p.beginWith(PolicyHead(p.Rules, instantMS), GenerationLen)
	return p
}

// Since returns the same rules, taken over at another instant.
func (p *Plan) Since(instantMS int64) *Plan {
	later := PlanOf(p.Policy, p.Set, instantMS)
	later.TTLMS = p.TTLMS
	return later
}

// limitPrefix comes before the name of a limit made in code, where its states are: no policy is called so.
const limitPrefix = "limit:"

// CallerPlan makes the plan of a limit made in code, which needs no place in Redis.
func CallerPlan(name string, set *kernel.RuleSet) *Plan {
	p := &Plan{Policy: limitPrefix + name, Set: set, Rules: set.Bytes()}
	p.beginWith(callerHead(set), 0)
	return p
}

// beginWith sets the head of states, whose first own bytes tell the rules from others; 0: all of it.
func (p *Plan) beginWith(head []byte, own byte) {
	p.Head, p.Blob = head, BlobOf(p.Rules, own, head)
	p.Sent = p.Blob
}

const (
	// TTLMaxMS bounds how long rules are kept in Redis: longer than any window of a year.
	TTLMaxMS = 400 * 24 * 3600 * 1000
	// RulesGraceMS is the time that rules are kept after their last state is needed.
	RulesGraceMS = 20 * 60 * 1000
	DayMS        = 24 * 3600 * 1000
)

// OwnName returns the name of the rule that decided; of later rules, of the own one that is called so, or the first.
func (p *Plan) OwnName(set *kernel.RuleSet, i int) string {
	return p.Set.Rules[max(p.Set.PlaceOf(set, i), 0)].Name
}

// Derive returns what a caller makes of the rules to report them with each decision. It is made once.
func (p *Plan) Derive(from func(*Plan) any) any {
	p.derivedOnce.Do(func() { p.derived = from(p) })
	return p.derived
}

// AnnounceEvery is how often rules are put again where other programs look for them.
const AnnounceEvery = 10 * time.Minute
