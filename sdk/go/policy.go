package sluicegate

import (
	"math"
	"slices"
)

// failureNames are the failure modes as records have them, by their numbers.
var failureNames = [...]string{"local", "allow", "deny"}

// overflow is what happens over the limit, by its kind: one of overflowKinds, or "", which is reject.
type overflow struct {
	kind     string
	queueUS  int64
	overflow Overflow
}

var overflowKinds = [...]string{"reject", "shadow", "queue", "degrade", "divert"}

// covers says whether it decides on a request for v that the rules refuse. A permit that passed under `shadow` holds
// nothing, so there a renewal or release of what is not held passes as well.
func (o overflow) covers(v verb) bool {
	switch v {
	case verbCheck, verbReserve, verbAcquire:
		return true
	case verbRelease, verbRenew:
		return o.kind == "shadow"
	}
	return false
}

// endless is the end of an override that has none.
const endless = math.MaxInt64

// policy is a version of a policy that this process decides by.
type policy struct {
	name      string
	version   int64
	app       string // the owner; "" if it has none
	apps      []string
	overflow  overflow
	onFailure FailureMode
	instantMS int64 // at which the version was taken over, in ms since 2026
	plan      *plan
	overrides map[string]keyPlan
}

// keyPlan is the rules of a key that has its own, and those that follow.
type keyPlan struct {
	own    *plan
	endsMS int64 // in ms since 1970, or endless
	after  *plan // the policy's rules, which apply since the end; nil if there is none
}

// planFor gives the rules of a key at an instant in µs since 1970.
func (p *policy) planFor(key string, nowUS int64) *plan {
	own, ok := p.overrides[key]
	switch {
	case !ok || key == "":
		return p.plan
	case own.endsMS <= nowUS/1000:
		return own.after
	default:
		return own.own
	}
}

// allows says why an app may not use the policy with a verb; nil if it may.
func (p *policy) allows(app string, v verb) *Error {
	owner := p.app != "" && app == p.app
	named := app != "" && slices.Contains(p.apps, app)
	may := owner || named || slices.Contains(p.apps, "*")
	if v == verbRefund || v == verbReset {
		// A policy of files has no owner: every app that may use it may do all of that.
		may = owner || named || p.app == "" && may
	}
	switch {
	case may:
		return nil
	case app == "":
		return newError(ErrAppMissing, nil, "app: policy `%s` is not available to a caller without an app", p.name)
	default:
		return newError(ErrPolicyNotAvailable, nil, "app: policy `%s` is not available to app `%s`", p.name, app)
	}
}

// ending is the rules of a key until they end.
func (p *policy) ending(own *plan, endsMS int64) keyPlan {
	if endsMS == endless {
		return keyPlan{own: own, endsMS: endsMS}
	}
	return keyPlan{own, endsMS, p.plan.since(min(max(p.instantMS, endsMS-year2026US/1000), instantMaxMS))}
}

// takenOver gives the instant of a version: that at which a server took it over, if it says so, and else this process' own.
// So a process that starts late, or whose clock is ahead, does not take an earlier version for the later one. Another version
// than the one before comes after that. A version that is held keeps its instant, also if a server publishes another one: else what it wrote
// would be of a later one.
func takenOver(since string, version int64, before *policy, ownMS int64) int64 {
	if before != nil && before.version == version {
		return before.instantMS
	}
	instant := ownMS
	if ms, rest, ok := digits(since); ok && rest == "" && ms < unitsMax {
		instant = max(ms-year2026US/1000, 0)
	}
	if before != nil {
		instant = max(instant, before.instantMS+1)
	}
	return min(instant, instantMaxMS)
}
