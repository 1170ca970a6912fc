package wire

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// CompiledRules is the rules of a policy, of one of its overrides, or of a limit made in code, ready to be sent.
type CompiledRules struct {
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
func (r *CompiledRules) Windows(now int64) (out []kernel.Window) {
	for i := range r.Set.Rules {
		if c := r.Set.Rules[i].Calendar; c != nil {
			out = append(out, c.Around(now))
		}
	}
	return out
}

var errCalendar = errors.New("later rules have a calendar that this program does not know")

// WindowsFor returns the windows for other rules; an error if those have a calendar that these rules have not.
func (r *CompiledRules) WindowsFor(other *kernel.RuleSet, now int64) ([]kernel.Window, error) {
	var out []kernel.Window
	for _, rule := range other.Rules {
		if rule.Flags&kernel.FlagCalendar == 0 {
			continue
		}
		own := slices.IndexFunc(r.Set.Rules, func(own kernel.Rule) bool {
			return own.Calendar != nil && own.Numbers[3] == rule.Numbers[3] && own.Numbers[4] == rule.Numbers[4]
		})
		if own < 0 {
			return nil, errCalendar
		}
		out = append(out, r.Set.Rules[own].Calendar.Around(now))
	}
	return out, nil
}

// MomentsAt returns an instant for each rule.
func (r *CompiledRules) MomentsAt(now int64) []kernel.Moment {
	return r.Set.AppendMoments(nil, kernel.Request{Now: now, Windows: r.Windows(now)})
}

// NewPolicyRules compiles a policy's rules that were taken over at an instant.
func NewPolicyRules(policy string, set *kernel.RuleSet, instantMS int64) *CompiledRules {
	r := &CompiledRules{Policy: policy, Set: set, Rules: set.Bytes()}
	r.RulesKey = RulesKey(policy, GenerationOf(r.Rules))
	r.setHead(PolicyHead(r.Rules, instantMS), GenerationLen)
	return r
}

// Since returns the same rules, taken over at another instant.
func (r *CompiledRules) Since(instantMS int64) *CompiledRules {
	later := NewPolicyRules(r.Policy, r.Set, instantMS)
	later.TTLMS = r.TTLMS
	return later
}

// limitPrefix comes before the name of a limit made in code, where its states are: no policy is called so.
const limitPrefix = "limit:"

// NewLimitRules compiles the rules of a limit made in code, which needs no place in Redis.
func NewLimitRules(name string, set *kernel.RuleSet) *CompiledRules {
	r := &CompiledRules{Policy: limitPrefix + name, Set: set, Rules: set.Bytes()}
	r.setHead(callerHead(set), 0)
	return r
}

// setHead sets the head of states, whose first own bytes identify the rules; 0: all of it.
func (r *CompiledRules) setHead(head []byte, own byte) {
	r.Head, r.Blob = head, BlobOf(r.Rules, own, head)
	r.Sent = r.Blob
}

const (
	// TTLMaxMS bounds how long rules are kept in Redis: longer than any window of a year.
	TTLMaxMS = 400 * 24 * 3600 * 1000
	// RulesGraceMS is the time that rules are kept after their last state is needed.
	RulesGraceMS = 20 * 60 * 1000
	DayMS        = 24 * 3600 * 1000
)

// OwnRuleName returns the name of the rule that decided; of later rules, of the own one that is called so, or the first.
func (r *CompiledRules) OwnRuleName(set *kernel.RuleSet, i int) string {
	return r.Set.Rules[max(r.Set.PlaceOf(set, i), 0)].Name
}

// Derived returns what a caller makes of the rules to report them with each decision. It is made once.
func (r *CompiledRules) Derived(from func(*CompiledRules) any) any {
	r.derivedOnce.Do(func() { r.derived = from(r) })
	return r.derived
}

// AnnounceEvery is how often rules are put again where other programs look for them.
const AnnounceEvery = 10 * time.Minute
