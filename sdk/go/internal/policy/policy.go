// Package policy has the policies that a process decides by: it reads their records (spec/record.md), and follows them where
// servers publish them.
package policy

import (
	"math"
	"slices"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// FailureMode is how requests are decided without Redis.
type FailureMode int

// The failure modes, in the order of failureNames.
const (
	failLocal FailureMode = iota
	FailAllow
	FailDeny
)

// failureNames are the failure modes as records have them, by their numbers.
var failureNames = [...]string{"local", "allow", "deny"}

// overflow is what happens over the limit, by its kind: one of overflowKinds, or "", which is reject.
type overflow struct {
	Kind     string
	QueueUS  int64
	Tag      string
	Target   string
	Response *response
}

// response is what a policy that degrades has served.
type response struct {
	Status  int
	Headers map[string]string
	Body    string
}

var overflowKinds = [...]string{"reject", "shadow", "queue", "degrade", "divert"}

// Covers reports whether it decides on a request for v that the rules refuse. A permit that passed under `shadow` holds
// nothing, so there a renewal or release of what is not held passes as well.
func (o overflow) Covers(v kernel.Verb) bool {
	switch v {
	case kernel.VerbCheck, kernel.VerbReserve, kernel.VerbAcquire:
		return true
	case kernel.VerbRelease, kernel.VerbRenew:
		return o.Kind == "shadow"
	}
	return false
}

// endless is the end of an override that has none.
const endless = math.MaxInt64

// Policy is a version of a policy that this process decides by.
type Policy struct {
	Name      string
	Version   int64
	app       string // the owner; "" if it has none
	apps      []string
	Overflow  overflow
	OnFailure FailureMode
	instantMS int64 // at which the version was taken over, in ms since 2026
	Rules     *wire.CompiledRules
	overrides map[string]override
}

// FromRules makes a policy of rules made in code, which every app may use.
func FromRules(name string, set *kernel.RuleSet, instantMS int64) *Policy {
	return &Policy{Name: name, apps: []string{"*"}, instantMS: instantMS, Rules: wire.NewPolicyRules(name, set, instantMS)}
}

// override is the rules of a key that has its own, and those that follow.
type override struct {
	rules    *wire.CompiledRules
	endsMS   int64               // in ms since 1970, or endless
	afterEnd *wire.CompiledRules // the policy's rules, which apply since the end; nil if there is none
}

// RulesFor returns the rules of a key at an instant in µs since 1970.
func (p *Policy) RulesFor(key string, nowUS int64) *wire.CompiledRules {
	override, ok := p.overrides[key]
	switch {
	case !ok || key == "":
		return p.Rules
	case override.endsMS <= nowUS/1000:
		return override.afterEnd
	default:
		return override.rules
	}
}

// Allows reports whether an app may use the policy with a verb.
func (p *Policy) Allows(app string, v kernel.Verb) bool {
	named := app != "" && (app == p.app || slices.Contains(p.apps, app))
	isOpen := slices.Contains(p.apps, "*")
	if v == kernel.VerbRefund || v == kernel.VerbReset {
		// A policy of files has no owner: every app that may use it may do all of that.
		isOpen = isOpen && p.app == ""
	}
	return named || isOpen
}

// overrideUntil returns the override of a key until it ends.
func (p *Policy) overrideUntil(rules *wire.CompiledRules, endsMS int64) override {
	if endsMS == endless {
		return override{rules: rules, endsMS: endsMS}
	}
	return override{rules, endsMS, p.Rules.Since(min(max(p.instantMS, endsMS-kernel.Year2026US/1000), wire.InstantMaxMS))}
}

// versionInstant returns the instant of a version: that at which a server took it over, if the record has it, and else this process' own.
// So a process that starts late, or whose clock is ahead, does not take an earlier version for the later one. Another version
// than the one before comes after that. A version that is held keeps its instant, also if a server publishes another one: else what it wrote
// would be of a later one.
func versionInstant(since string, version int64, before *Policy, ownMS int64) int64 {
	if before != nil && before.Version == version {
		return before.instantMS
	}
	instant := ownMS
	if ms, rest, ok := lex.Digits(since); ok && rest == "" && ms < kernel.UnitsMax {
		instant = max(ms-kernel.Year2026US/1000, 0)
	}
	if before != nil {
		instant = max(instant, before.instantMS+1)
	}
	return min(instant, wire.InstantMaxMS)
}
