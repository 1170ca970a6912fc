package sluicegate

import (
	"fmt"
	"strings"
)

// Bounds of `leases`: those of servers. This process leases nothing, but rejects what they reject.
const (
	sharePercentMax = 50
	leaseTermMinUS  = 100_000
	leaseTermMaxUS  = 2_000_000
)

// leases checks `leases`, and reports whether it sets bounds.
func (r *reader) leases(path string, v value) bool {
	if v.kind == '"' && (v.text == "auto" || v.text == "off") {
		return false
	}
	if v.kind != '{' {
		r.add(path, "expected `auto`, `off` or `{ max_share: 10%%, term: 1s }`")
		return false
	}
	fields := r.fields(path, v, "max_share", "term")
	if share, ok := fields["max_share"]; ok {
		r.share(path+".max_share", share)
	}
	if term, ok := fields["term"]; ok {
		before, us := len(r.problems), r.duration(path+".term", term)
		if len(r.problems) == before && (us < leaseTermMinUS || us > leaseTermMaxUS) {
			r.add(path+".term", "`%s` is out of range, expected a duration from 100ms to 2s, such as `1s`", short(term.text))
		}
	}
	return true
}

func (r *reader) share(path string, v value) {
	if v.kind != '"' {
		r.add(path, "expected a share from 1%% to 50%%, such as `10%%`")
		return
	}
	number, isPercent := strings.CutSuffix(v.text, "%")
	percent, rest, ok := digits(number)
	if !isPercent || !ok || rest != "" || percent < 1 || percent > sharePercentMax {
		r.add(path, "`%s` is not a whole percentage from 1%% to 50%%, such as `10%%`", short(v.text))
	}
}

// checkLeasable reports bounds of leases for a policy whose permits servers cannot lease.
func (r *reader) checkLeasable(d *document) {
	reason := neverLeased(d.set)
	for place, own := range d.overrides {
		if why := neverLeased(own.set); reason == "" && why != "" {
			reason = fmt.Sprintf("in overrides[%d], %s", place, why)
		}
	}
	if reason == "" && d.overflow.kind == "queue" {
		reason = "`overflow: queue` books permits in advance"
	}
	if reason != "" {
		r.add("leases", "%s; expected `auto` or `off`", reason)
	}
}

// neverLeased gives the reason why permits of these rules cannot be leased; empty: they can be.
func neverLeased(set *ruleSet) string {
	for _, one := range set.rules {
		if why := one.neverLeased(); why != "" {
			return fmt.Sprintf("rule `%s` is a `%s`, %s", one.name, algorithmNames[one.code], why)
		}
	}
	return ""
}

func (r *rule) neverLeased() string {
	const second = 1_000_000
	switch n := r.numbers; r.code {
	case codeSmoothBursty, codeSmoothWarmup:
		return "which books permits in advance"
	case codeConcurrency:
		return "whose permits cannot be leased"
	case codeLeakyBucket:
		if n[5] == 1 {
			return "whose `delay` is not `none`"
		}
	case codeFixedWindow:
		if r.flags&flagCalendar == 0 && n[2] < second {
			return "whose window of less than 1 s is too short to lease"
		}
	case codeSlidingWindow, codeSlidingCounter, codeSlidingLog:
		if n[1] < 10*second {
			return "whose window of less than 10 s is too short to lease"
		}
	}
	return ""
}
