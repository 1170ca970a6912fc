package sluicegate

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// policy is a version of a policy that this process decides by.
type policy struct {
	name      string
	version   int64
	app       string // the owner; "" if it has none
	apps      []string
	overflow  overflow
	onFailure onStoreFailure
	instantMS int64 // at which the version was taken over, in ms since 2026
	plan      *plan
	overrides map[string]keyPlan
}

// keyPlan is the rules of a key that has its own, and those that follow.
type keyPlan struct {
	own    *plan
	endsMS int64 // in ms since 1970, or endless
	after  *plan // the policy's rules, in force since the end; nil if there is none
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
	named := app != "" && contains(p.apps, app)
	may := owner || named || contains(p.apps, "*")
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

// check finds rules by which nothing is decided, as one decision could take Redis too long.
func (p *policy) check() error {
	if p.plan.set.tooCostly() {
		return fmt.Errorf("rules: %w", errCostly)
	}
	for key, own := range p.overrides {
		if own.own.set.tooCostly() {
			return fmt.Errorf("rules of key `%s`: %w", short(key), errCostly)
		}
	}
	return nil
}

// policyOf makes a policy of a document.
func policyOf(d *document, instantMS int64) (*policy, error) {
	p := &policy{
		name: d.name, apps: d.apps, overflow: d.overflow, onFailure: d.onFailure,
		instantMS: instantMS, overrides: map[string]keyPlan{},
	}
	var err error
	if p.plan, err = ofPolicy(d.name, d.set, zonesOf(d.rules), instantMS); err != nil {
		return nil, err
	}
	for _, o := range d.overrides {
		own, err := ofPolicy(d.name, o.set, zonesOf(o.rules), instantMS)
		if err != nil {
			return nil, err
		}
		p.overrides[o.key] = p.ending(own, o.endsMS)
	}
	return p, nil
}

// ending is the rules of a key until they end.
func (p *policy) ending(own *plan, endsMS int64) keyPlan {
	if endsMS == endless {
		return keyPlan{own: own, endsMS: endsMS}
	}
	return keyPlan{own, endsMS, p.plan.since(max(p.instantMS, endsMS-year2026US/1000))}
}

// member gives a member of an object.
func (v value) member(name string) value {
	for _, f := range v.fields {
		if f.name == name {
			return f.value
		}
	}
	return value{}
}

// readPolicy reads a field of `sg:{policies}`, in place of what was held before (nil: nothing) and by this process' own clock.
// Members that it does not know are skipped.
func readPolicy(name, text string, before *policy, ownMS int64) (*policy, error) {
	v, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	version, rest, ok := digits(v.member("version").text)
	state, app := v.member("state"), v.member("app")
	switch {
	case v.kind != '{':
		return nil, errors.New("expected an object")
	case v.member("version").kind != '0' || !ok || rest != "":
		return nil, errors.New("version: expected a whole number")
	case state.kind != '"' || state.text != "active" && state.text != "shadow":
		return nil, fmt.Errorf("state: unknown value `%s`", short(state.text))
	case app.kind != '"':
		return nil, errors.New("app: expected a text")
	}
	d, err := readDocument(v.member("document"))
	if err != nil {
		return nil, err
	}
	if d.name != name {
		return nil, fmt.Errorf("the document is of policy `%s`", short(d.name))
	}
	p, err := policyOf(d, takenOver(v.member("since_ms"), version, before, ownMS))
	if err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.version, p.app = version, app.text
	if p.apps == nil && p.app != "" {
		p.apps = []string{p.app}
	}
	if state.text == "shadow" {
		p.overflow = overflow{kind: "shadow"}
	}
	p.useCompiled(v.member("compiled"))
	return p, nil
}

// takenOver gives the instant of a version: that at which a server took it over, if it says so, and else this process' own.
// So a process that starts late, or whose clock is ahead, does not take an earlier version for the later one. Another version
// than the one before comes after that. A version that is held keeps its instant, also if a server publishes another one: else what it wrote
// would be of a later one.
func takenOver(since value, version int64, before *policy, ownMS int64) int64 {
	if before != nil && before.version == version {
		return before.instantMS
	}
	instant := ownMS
	if ms, rest, ok := digits(since.text); ok && since.kind == '0' && rest == "" && ms < unitsMax {
		instant = max(ms-year2026US/1000, 0)
	}
	if before != nil {
		instant = max(instant, before.instantMS+1)
	}
	return min(instant, instantMaxMS)
}

// useCompiled takes what the server made of the rules in place of what this process made, if it knows the format.
func (p *policy) useCompiled(v value) {
	if v.kind != '{' || v.member("format").text != "2" {
		return
	}
	main, err := p.compiledPlan(v.member("rules"))
	if err != nil {
		return
	}
	overrides := map[string]keyPlan{}
	for _, o := range v.member("overrides").list {
		made, err := p.compiledPlan(o)
		if err != nil {
			return
		}
		endsMS, _, ok := digits(o.member("until_ms").text)
		if !ok {
			endsMS = endless
		}
		overrides[o.member("key").text] = keyPlan{own: made, endsMS: endsMS}
	}
	p.plan, p.overrides = main, overrides
	for key, own := range overrides {
		overrides[key] = p.ending(own.own, own.endsMS)
	}
}

func (p *policy) compiledPlan(v value) (*plan, error) {
	rules, err := base64.RawURLEncoding.DecodeString(v.member("blob").text)
	if err != nil {
		return nil, err
	}
	set, err := parseRules(rules)
	if err != nil {
		return nil, err
	}
	each, zones := v.member("each").list, []string(nil)
	if len(each) != len(set.rules) {
		return nil, errBlob
	}
	for i, e := range each {
		if set.rules[i].name = e.member("name").text; hashOfName(set.rules[i].name) != set.rules[i].nameHash {
			return nil, errBlob
		}
		if c := e.member("calendar"); c.kind == '{' {
			zones = append(zones, c.member("zone").text)
		}
	}
	made, err := ofPolicy(p.name, set, zones, p.instantMS)
	if err != nil {
		return nil, err
	}
	for i, e := range each {
		made.windowsUS[i], _, _ = digits(e.member("window_us").text)
	}
	life, _, ok := digits(v.member("life_ms").text)
	if !ok || set.tooCostly() {
		return nil, errBlob
	}
	// Rules that are kept for longer than need be do no harm, and rules that are lost cost a wait.
	made.lifeMS = min(max(life, made.lifeMS), lifeMaxMS)
	return made, nil
}
