package policy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// recordsFormat is the format of the hash and of files of records that this program reads, and recordFormat that of a record.
	recordsFormat, recordFormat = "1", "1"
	// RecordMax bounds a record in bytes, as servers do.
	RecordMax = 8 << 20
)

// Read reads the record of a policy (spec/record.md) that replaces the version before (nil: none is held), by this process'
// own clock. An error that is not a kernel.LaterError is of a damaged record.
func Read(name, text string, before *Policy, ownMS int64) (*Policy, error) {
	if len(text) > RecordMax {
		return nil, fmt.Errorf("record: %d bytes, expected at most %d", len(text), RecordMax)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("record: not UTF-8")
	}
	r := &recordReader{}
	top := value{r, "", json.RawMessage(text)}.object()
	format := top.at("record")
	switch text := string(format.json); {
	case text == "" || strings.Trim(text, "-0123456789") != "":
		format.fail(errors.New("expected an integer"))
	case text != recordFormat:
		format.fail(kernel.NewLaterError("`%s` is of a later version; this program reads %s", lex.Short(text), recordFormat))
	}
	if r.err != nil {
		return nil, r.err
	}
	p := &Policy{Name: name, Version: top.at("version").integer(0, math.MaxInt64), app: top.at("app").text()}
	p.instantMS = versionInstant(string(top.at("since_ms").json), p.Version, before, ownMS)
	for _, app := range top.at("apps").list(1) {
		p.apps = append(p.apps, app.text())
	}
	p.OnFailure = FailureMode(top.at("on_store_failure").word(failureNames[:]...))
	p.Overflow = top.at("overflow").object().overflow()
	p.Rules = top.rules(p)
	p.overrides = top.overrides(p)
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// ReadFile reads a file of records, as `sluicegate policies compile` writes it, and returns its policies by name.
func ReadFile(text string, ownMS int64) (map[string]*Policy, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		return nil, fmt.Errorf("not a file of `sluicegate policies compile`: %w", err)
	}
	if format := string(file["#format"]); format != recordsFormat {
		return nil, fmt.Errorf("#format: `%s`, expected %s of a file of `sluicegate policies compile`",
			lex.Short(format), recordsFormat)
	}
	out := map[string]*Policy{}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if strings.Contains(name, "#") {
			continue
		}
		p, err := Read(name, string(file[name]), nil, ownMS)
		if err != nil {
			return nil, fmt.Errorf("policy `%s`: %w", lex.Short(name), err)
		}
		out[name] = p
	}
	return out, nil
}

// recordReader keeps the first problem of a record.
type recordReader struct{ err error }

// value is a JSON value of a record, by its path.
type value struct {
	r    *recordReader
	path string
	json json.RawMessage // nil: it is missing
}

func (v value) fail(err error) {
	if v.r.err != nil {
		return
	}
	if v.path != "" {
		err = fmt.Errorf("%s: %w", v.path, err)
	}
	v.r.err = err
}

// as reads a value as a type of Go. JSON's null is an error.
func as[T any](v value, expected string) (out T) {
	if len(v.json) == 0 || v.json[0] == 'n' || json.Unmarshal(v.json, &out) != nil {
		v.fail(errors.New("expected " + expected))
	}
	return out
}

func (v value) text() string { return as[string](v, "a text") }

func (v value) integer(from, to int64) int64 {
	n := as[int64](v, "an integer")
	if n < from || n > to {
		v.fail(fmt.Errorf("`%d` is outside %d..=%d", n, from, to))
	}
	return n
}

// word reads one of several words, and returns its place.
func (v value) word(words ...string) int {
	text := v.text()
	if place := slices.Index(words, text); place >= 0 {
		return place
	}
	v.fail(kernel.NewLaterError("unknown value `%s`, expected one of `%s`", lex.Short(text), strings.Join(words, "`, `")))
	return 0
}

func (v value) list(least int) (out []value) {
	for i, element := range as[[]json.RawMessage](v, "a list") {
		out = append(out, value{v.r, fmt.Sprintf("%s[%d]", v.path, i), element})
	}
	if len(out) < least {
		v.fail(fmt.Errorf("%d elements, expected at least %d", len(out), least))
	}
	return out
}

// object is a JSON object with its members. Names are compared exactly, which encoding/json does not do for a struct.
type object struct {
	value
	members map[string]json.RawMessage
}

func (v value) object() object {
	return object{v, as[map[string]json.RawMessage](v, "an object")}
}

func (o object) at(name string) value {
	path := name
	if o.path != "" {
		path = o.path + "." + name
	}
	return value{o.r, path, o.members[name]}
}

// has reports whether an optional member is present.
func (o object) has(name string) bool { return o.members[name] != nil }

func (o object) overflow() overflow {
	kind := overflowKinds[o.at("kind").word(overflowKinds[:]...)]
	out := overflow{Kind: kind}
	switch kind {
	case "queue":
		out.QueueUS = o.at("max_wait_us").integer(1, kernel.SpanMaxUS)
	case "divert":
		out.Target = o.at("target").text()
	case "degrade":
		switch {
		case o.has("tag"):
			out.Tag = o.at("tag").text()
		case o.has("response"):
			out.Response = o.at("response").object().response()
		default:
			o.fail(kernel.NewLaterError("`degrade` has neither `tag` nor `response`"))
		}
	}
	return out
}

func (o object) response() *response {
	out := &response{Status: int(o.at("status").integer(200, 599)), Body: o.at("body").text(), Headers: map[string]string{}}
	headers := o.at("headers").object()
	for name := range headers.members {
		out.Headers[name] = headers.at(name).text()
	}
	return out
}

// rules reads the rule set of the policy, or of an override.
func (o object) rules(p *Policy) *wire.CompiledRules {
	blob, each := o.at("blob"), o.at("each")
	bytes, err := base64.RawURLEncoding.DecodeString(blob.text())
	if err != nil {
		blob.fail(err)
		return nil
	}
	set, err := kernel.ParseRules(bytes)
	if err == nil && set.TooCostly() {
		err = kernel.ErrCostly
	}
	if err != nil {
		blob.fail(err)
		return nil
	}
	list := each.list(1)
	if len(list) != len(set.Rules) {
		each.fail(fmt.Errorf("%d elements for %d rules", len(list), len(set.Rules)))
		return nil
	}
	for i := range list {
		list[i].object().describe(&set.Rules[i])
	}
	rules := wire.NewPolicyRules(p.Name, set, p.instantMS)
	rules.TTLMS = o.at("life_ms").integer(1, wire.TTLMaxMS)
	return rules
}

// describe sets what the blob does not contain of a rule.
func (o object) describe(r *kernel.Rule) {
	name := o.at("name")
	if r.Name = name.text(); kernel.HashOfName(r.Name) != r.NameHash {
		name.fail(fmt.Errorf("`%s` is not the name of the rule in the blob", lex.Short(r.Name)))
	}
	o.at("limit").integer(1, kernel.UnitsMax)
	if o.has("window_us") {
		r.WindowUS = o.at("window_us").integer(1, kernel.SpanMaxUS)
	}
	if r.Flags&kernel.FlagCalendar == 0 {
		return
	}
	calendar := o.at("calendar").object()
	unit, zone := calendar.at("unit"), calendar.at("zone")
	if place := unit.word(kernel.UnitNames[:]...); float64(place) != r.Numbers[3] {
		unit.fail(fmt.Errorf("`%s` is not the unit of the rule in the blob", kernel.UnitNames[place]))
	}
	location, err := kernel.LoadZone(zone.text())
	if err != nil {
		zone.fail(kernel.NewLaterError("`%s` %v", lex.Short(zone.text()), err))
		return
	}
	r.Calendar = &kernel.Calendar{Unit: int(r.Numbers[3]), Zone: location}
}

func (o object) overrides(p *Policy) map[string]override {
	if o.r.err != nil || !o.has("overrides") {
		return nil
	}
	out := map[string]override{}
	for _, element := range o.at("overrides").list(0) {
		item := element.object()
		endsMS := int64(endless)
		if item.has("until_ms") {
			endsMS = item.at("until_ms").integer(0, kernel.SpanMaxUS)
		}
		key, rules := item.at("key").text(), item.rules(p)
		if o.r.err != nil {
			return nil
		}
		out[key] = p.overrideUntil(rules, endsMS)
	}
	return out
}
