package sluicegate

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// onStoreFailure is what is decided while Redis does not answer.
type onStoreFailure int

const (
	failLocal onStoreFailure = iota
	failAllow
	failDeny
)

var failureNames = [...]string{"local", "allow", "deny"}

// overflow is what happens over the limit. kind "" is reject.
type overflow struct {
	kind     string // "", shadow, queue, degrade or divert
	queueUS  int64
	overflow Overflow
}

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

// document is a policy document whose form and values were checked.
type document struct {
	name      string
	rules     []Rule
	set       *ruleSet
	apps      []string // nil: its owner alone
	overrides []override
	carry     carry
	overflow  overflow
	hasMatch  bool
	onFailure onStoreFailure
}

type override struct {
	key    string
	rules  []Rule
	set    *ruleSet
	endsMS int64 // in ms since 1970, or endless
}

// endless is the end of an override that has none.
const endless = math.MaxInt64

// Bounds of a document: those of servers, so that both read the same ones.
const (
	appsMax       = 1000
	overridesMax  = 1000
	keyMax        = 1024
	textMax       = 4096
	bodyMax       = 65_536
	headersMax    = 32
	methodsMax    = 40
	matchesMax    = 256
	hostsMax      = 64
	hostMax       = 253
	attributesMax = 8
	overloadMaxUS = 10_000_000
	problemsMax   = 100
)

// parseDocument reads a policy document. The error names all that is wrong with it.
func parseDocument(text string) (*document, error) {
	v, err := parseJSON(text)
	if err != nil {
		return nil, newError(ErrRules, err, "rules: %v", err)
	}
	r := &reader{}
	d := r.document(v)
	if len(r.problems) == 0 {
		r.checkPermits(d)
	}
	return d, r.err()
}

// readDocument reads a policy document that a server has published, and perhaps took before checkPermits was a rule.
func readDocument(v value) (*document, error) {
	r := &reader{}
	d := r.document(v)
	return d, r.err()
}

// err gives all that is wrong as one error.
func (r *reader) err() error {
	if len(r.problems) > 0 {
		return newError(ErrRules, nil, "rules: %s", strings.Join(r.problems, "; "))
	}
	return nil
}

// checkPermits reports `overflow: queue` and `match` of a policy that hands out permits: an acquire never waits, and a
// gateway only checks.
func (r *reader) checkPermits(d *document) {
	holds := d.set.supports(verbAcquire)
	for _, own := range d.overrides {
		holds = holds || own.set.supports(verbAcquire)
	}
	if holds && d.overflow.kind == "queue" {
		r.add("overflow", "`queue` is not supported with a `concurrency` rule: Acquire does not wait; expected `reject`, `degrade`, `divert` or `shadow`")
	}
	if holds && d.hasMatch {
		r.add("match", "not supported with a `concurrency` rule: gateways only check requests")
	}
}

func (r *reader) document(v value) *document {
	d := &document{}
	fields := r.fields("", v, "name", "rules", "apps", "overrides", "carry", "overflow", "on_store_failure",
		"on_overload", "on_key_quota", "leases", "match", "key")
	if fields == nil {
		return d
	}
	for _, required := range []string{"name", "rules"} {
		if _, ok := fields[required]; !ok {
			r.add(required, "missing field")
		}
	}
	given := func(name string, read func(path string, v value)) {
		if v, ok := fields[name]; ok {
			read(name, v)
		}
	}
	given("carry", func(path string, v value) {
		d.carry = carry(r.word(path, v, "usage", "proportional", "reset"))
	})
	given("name", func(path string, v value) { d.name = r.name(path, v) })
	given("rules", func(path string, v value) { d.rules, d.set = r.rules(path, v, d.carry) })
	given("apps", func(path string, v value) { d.apps = r.apps(path, v) })
	given("overrides", func(path string, v value) { d.overrides = r.overrides(path, v, d.carry) })
	given("overflow", func(path string, v value) { d.overflow = r.overflow(path, v) })
	given("on_store_failure", func(path string, v value) {
		d.onFailure = onStoreFailure(r.word(path, v, failureNames[:]...))
	})
	given("on_overload", r.onOverload)
	given("on_key_quota", func(path string, v value) { r.word(path, v, "share", "deny") })
	hasBounds := false
	given("leases", func(path string, v value) { hasBounds = r.leases(path, v) })
	given("match", func(path string, v value) { d.hasMatch = true; r.match(path, v) })
	given("key", r.key)
	if hasBounds && len(r.problems) == 0 {
		r.checkLeasable(d)
	}
	return d
}

func (r *reader) apps(path string, v value) []string {
	apps, seen := []string{}, map[string]bool{}
	for i, element := range r.list(path, v, 1, appsMax) {
		at := fmt.Sprintf("%s[%d]", path, i)
		app := r.text(at, element)
		if app != "*" {
			app = r.name(at, element)
		}
		if seen[app] {
			r.add(at, "`%s` is there twice", short(app))
		}
		seen[app] = true
		apps = append(apps, app)
	}
	return apps
}

func (r *reader) overrides(path string, v value, c carry) (out []override) {
	seen := map[string]bool{}
	for i, element := range r.list(path, v, 0, overridesMax) {
		at := fmt.Sprintf("%s[%d]", path, i)
		fields := r.fields(at, element, "key", "until", "rules")
		o := override{endsMS: endless}
		if v, ok := fields["until"]; ok {
			o.endsMS = r.instant(at+".until", v)
		}
		if v, ok := fields["key"]; ok {
			o.key = r.sizedText(at+".key", v, 1, keyMax)
		} else {
			r.add(at+".key", "missing field")
		}
		if v, ok := fields["rules"]; ok {
			o.rules, o.set = r.rules(at+".rules", v, c)
		} else {
			r.add(at+".rules", "missing field")
		}
		if seen[o.key] {
			r.add(at+".key", "`%s` has another override", short(o.key))
		}
		seen[o.key] = true
		out = append(out, o)
	}
	return out
}

// instant reads a second of UTC, in ms since 1970.
func (r *reader) instant(path string, v value) int64 {
	const layout = "2006-01-02T15:04:05Z"
	at, err := time.Parse(layout, v.text)
	if v.kind != '"' || err != nil || at.Format(layout) != v.text || at.Year() < 1970 || at.Year() > 2099 {
		r.add(path, "expected UTC from 1970 to 2099, such as `2026-12-31T18:00:00Z`")
	}
	return at.UnixMilli()
}

// onOverload checks what is done while Redis is busy, which this process cannot tell from a Redis that is silent.
func (r *reader) onOverload(path string, v value) {
	if v.kind == '"' {
		r.word(path, v, "refuse")
		return
	}
	wait, ok := r.fields(path, v, "wait")["wait"]
	if !ok {
		r.add(path, "expected `refuse` or `{\"wait\": DURATION}`")
		return
	}
	if r.duration(path+".wait", wait) > overloadMaxUS {
		r.add(path+".wait", "more than 10s")
	}
}

func (r *reader) overflow(path string, v value) overflow {
	if v.kind == '"' {
		return overflow{kind: []string{"", "shadow"}[r.word(path, v, "reject", "shadow")]}
	}
	fields := r.fields(path, v, "queue", "degrade", "divert")
	if len(fields) != 1 {
		r.add(path, "expected `reject`, `shadow`, or an object of one of `queue`, `degrade`, `divert`")
		return overflow{}
	}
	if inner, ok := fields["queue"]; ok {
		wait, ok := r.fields(path+".queue", inner, "max_wait")["max_wait"]
		if !ok {
			r.add(path+".queue.max_wait", "missing field")
			return overflow{}
		}
		return overflow{kind: "queue", queueUS: r.duration(path+".queue.max_wait", wait)}
	}
	if inner, ok := fields["divert"]; ok {
		target, ok := r.fields(path+".divert", inner, "target")["target"]
		if !ok {
			r.add(path+".divert.target", "missing field")
			return overflow{}
		}
		text := r.sizedText(path+".divert.target", target, 1, textMax)
		if hasControl(text) {
			r.add(path+".divert.target", "has a control character")
		}
		return overflow{kind: "divert", overflow: Overflow{Kind: OverflowDivert, Target: text}}
	}
	return r.degrade(path+".degrade", fields["degrade"])
}

func (r *reader) degrade(path string, v value) overflow {
	fields := r.fields(path, v, "tag", "response")
	out := overflow{kind: "degrade", overflow: Overflow{Kind: OverflowDegrade}}
	if len(fields) != 1 {
		r.add(path, "expected either `tag` or `response`")
		return out
	}
	if tag, ok := fields["tag"]; ok {
		out.overflow.Tag = r.name(path+".tag", tag)
		return out
	}
	out.overflow.Response = r.response(path+".response", fields["response"])
	return out
}

func (r *reader) response(path string, v value) *Response {
	fields, out := r.fields(path, v, "status", "body", "headers"), &Response{}
	if v, ok := fields["status"]; ok {
		status := r.whole(path+".status", v)
		r.problems.inRange(path+".status", status, 200, 599)
		out.Status = int(status)
	} else {
		r.add(path+".status", "missing field")
	}
	if v, ok := fields["body"]; ok {
		out.Body = r.sizedText(path+".body", v, 0, bodyMax)
	} else {
		r.add(path+".body", "missing field")
	}
	headers, ok := fields["headers"]
	if !ok {
		return out
	}
	if headers.kind != '{' || len(headers.fields) > headersMax {
		r.add(path+".headers", "expected an object of at most %d fields", headersMax)
		return out
	}
	out.Headers = map[string]string{}
	for _, f := range headers.fields {
		at, name := join(path+".headers", f.name), lower(f.name)
		text := r.sizedText(at, f.value, 1, textMax)
		if !isToken(f.name) {
			r.add(at, "is not a token")
		}
		if _, twice := out.Headers[name]; twice {
			r.add(at, "is there twice")
		}
		if hasControl(text) || !isASCII(text) {
			r.add(at, "expected ASCII without control characters")
		}
		out.Headers[name] = text
	}
	return out
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// match checks one case, or a list of cases.
func (r *reader) match(path string, v value) {
	if v.kind != '[' {
		r.matchCase(path, v)
		return
	}
	for i, element := range r.list(path, v, 1, matchesMax) {
		r.matchCase(fmt.Sprintf("%s[%d]", path, i), element)
	}
}

func (r *reader) matchCase(path string, v value) {
	fields := r.fields(path, v, "host", "path", "method", "except")
	r.conditions(path, fields, "expected at least one of `host`, `path`, `method` and `except`")
	except, ok := fields["except"]
	if !ok {
		return
	}
	for i, element := range r.list(path+".except", except, 1, matchesMax) {
		at := fmt.Sprintf("%s.except[%d]", path, i)
		fields := r.fields(at, element, "host", "path", "method")
		r.conditions(at, fields, "expected at least one of `host`, `path` and `method`")
	}
}

func (r *reader) conditions(path string, fields map[string]value, none string) {
	if fields != nil && len(fields) == 0 {
		r.add(path, "%s", none)
	}
	if hosts, ok := fields["host"]; ok {
		r.each(path+".host", hosts, hostsMax, isHost, "a host in small letters")
	}
	if p, ok := fields["path"]; ok {
		forms := r.fields(path+".path", p, "exact", "prefix", "starts_with")
		if len(forms) != 1 {
			r.add(path+".path", "expected exactly one of `exact`, `prefix` and `starts_with`")
		}
		for form, v := range forms {
			at := path + ".path." + form
			text := r.sizedText(at, v, 1, textMax)
			if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#") || hasControl(text) {
				r.add(at, "`%s` is not a path; expected a `/` first, and no `?`, `#` or control character", short(text))
			}
		}
	}
	if methods, ok := fields["method"]; ok {
		isMethod := func(text string) bool { return isToken(text) && strings.ToUpper(text) == text }
		r.each(path+".method", methods, methodsMax, isMethod, "a method")
	}
}

// each checks a list of texts, each once.
func (r *reader) each(path string, v value, most int, is func(string) bool, what string) {
	seen := map[string]bool{}
	for i, element := range r.list(path, v, 1, most) {
		at := fmt.Sprintf("%s[%d]", path, i)
		text := r.text(at, element)
		if !is(text) || seen[text] {
			r.add(at, "`%s` is not %s, or is there twice", short(text), what)
		}
		seen[text] = true
	}
}

// isHost reports whether text is a name in small letters, or `*.` and a name.
func isHost(text string) bool {
	if len(text) > hostMax {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(text, "*."), ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

func (r *reader) key(path string, v value) {
	seen := map[string]bool{}
	for i, element := range r.list(path, v, 1, attributesMax) {
		at := fmt.Sprintf("%s[%d]", path, i)
		text := r.text(at, element)
		name := text
		header, isHeader := strings.CutPrefix(text, "header:")
		if isHeader {
			name = "header:" + lower(header)
		}
		plain := contains([]string{"remote_ip", "path", "method", "host", "user_agent", "status"}, text)
		if !plain && !(isHeader && isToken(header)) {
			r.add(at, "unknown attribute `%s`", short(text))
		}
		if seen[name] {
			r.add(at, "`%s` is there twice", short(text))
		}
		seen[name] = true
	}
}
