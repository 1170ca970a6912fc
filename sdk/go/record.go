package sluicegate

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

const (
	// recordsFormat is the format of the hash and of files of records that this program reads, and recordFormat that of a record.
	recordsFormat, recordFormat = "1", "1"
	// recordMax bounds a record in bytes, as servers do.
	recordMax = 8 << 20
)

// laterError is the error of a record that this program must not decide by, because a part of it is of a later version: a version
// of the policy that is held is dropped.
type laterError string

func (e laterError) Error() string { return string(e) }

// ofLater makes a laterError.
func ofLater(format string, args ...any) error { return laterError(fmt.Sprintf(format, args...)) }

// readRecord reads the record of a policy (spec/record.md) that replaces the version before (nil: none is held), by this process'
// own clock. An error that is not a laterError is of a damaged record.
func readRecord(name, text string, before *policy, ownMS int64) (*policy, error) {
	if len(text) > recordMax {
		return nil, fmt.Errorf("record: %d bytes, expected at most %d", len(text), recordMax)
	}
	r := &recordReader{}
	top := value{r, "", json.RawMessage(text)}.object()
	format := top.at("record")
	switch said := string(format.json); {
	case said == "" || strings.Trim(said, "-0123456789") != "":
		format.fail(errors.New("expected an integer"))
	case said != recordFormat:
		format.fail(ofLater("`%s` is of a later version; this program reads %s", short(said), recordFormat))
	}
	if r.err != nil {
		return nil, r.err
	}
	p := &policy{name: name, version: top.at("version").integer(0, math.MaxInt64), app: top.at("app").text()}
	p.instantMS = takenOver(string(top.at("since_ms").json), p.version, before, ownMS)
	for _, app := range top.at("apps").list(1) {
		p.apps = append(p.apps, app.text())
	}
	p.onFailure = FailureMode(top.at("on_store_failure").word(failureNames[:]...))
	p.overflow = top.at("overflow").object().overflow()
	p.plan = top.rules(p)
	p.overrides = top.overrides(p)
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// readRecords reads a file of records, as `sluicegate policies compile` writes it, and gives its policies by name.
func readRecords(text string, ownMS int64) (map[string]*policy, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		return nil, newError(ErrRules, err, "rules: not a file of `sluicegate policies compile`: %v", err)
	}
	if format := string(file["#format"]); format != recordsFormat {
		return nil, newError(ErrRules, nil, "rules: #format: `%s`, expected %s of a file of `sluicegate policies compile`",
			short(format), recordsFormat)
	}
	out := map[string]*policy{}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if strings.Contains(name, "#") {
			continue
		}
		p, err := readRecord(name, string(file[name]), nil, ownMS)
		if err != nil {
			return nil, newError(ErrRules, err, "rules: policy `%s`: %v", short(name), err)
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

// word reads one of several words, and gives its place.
func (v value) word(words ...string) int {
	text := v.text()
	for i, word := range words {
		if text == word {
			return i
		}
	}
	v.fail(ofLater("unknown value `%s`, expected one of `%s`", short(text), strings.Join(words, "`, `")))
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
	out := overflow{kind: kind}
	switch kind {
	case "queue":
		out.queueUS = o.at("max_wait_us").integer(1, spanMaxUS)
	case "divert":
		out.overflow = Overflow{Kind: OverflowDivert, Target: o.at("target").text()}
	case "degrade":
		out.overflow.Kind = OverflowDegrade
		switch {
		case o.has("tag"):
			out.overflow.Tag = o.at("tag").text()
		case o.has("response"):
			out.overflow.Response = o.at("response").object().response()
		default:
			o.fail(ofLater("`degrade` has neither `tag` nor `response`"))
		}
	}
	return out
}

func (o object) response() *Response {
	out := &Response{Status: int(o.at("status").integer(200, 599)), Body: o.at("body").text(), Headers: map[string]string{}}
	headers := o.at("headers").object()
	for name := range headers.members {
		out.Headers[name] = headers.at(name).text()
	}
	return out
}

// rules reads the rule set of the policy, or of an override.
func (o object) rules(p *policy) *plan {
	blob, each := o.at("blob"), o.at("each")
	bytes, err := base64.RawURLEncoding.DecodeString(blob.text())
	if err != nil {
		blob.fail(err)
		return nil
	}
	set, err := parseRules(bytes)
	if err == nil && set.tooCostly() {
		err = errCostly
	}
	if err != nil {
		blob.fail(err)
		return nil
	}
	list := each.list(1)
	if len(list) != len(set.rules) {
		each.fail(fmt.Errorf("%d elements for %d rules", len(list), len(set.rules)))
		return nil
	}
	for i := range list {
		list[i].object().describe(&set.rules[i])
	}
	made := ofPolicy(p.name, set, p.instantMS)
	made.lifeMS = o.at("life_ms").integer(1, lifeMaxMS)
	return made
}

// describe sets what the blob does not contain of a rule.
func (o object) describe(r *rule) {
	name := o.at("name")
	if r.name = name.text(); hashOfName(r.name) != r.nameHash {
		name.fail(fmt.Errorf("`%s` is not the name of the rule in the blob", short(r.name)))
	}
	o.at("limit").integer(1, unitsMax)
	if o.has("window_us") {
		r.windowUS = o.at("window_us").integer(1, spanMaxUS)
	}
	if r.flags&flagCalendar == 0 {
		return
	}
	own := o.at("calendar").object()
	unit, zone := own.at("unit"), own.at("zone")
	if place := unit.word(unitNames[:]...); float64(place) != r.numbers[3] {
		unit.fail(fmt.Errorf("`%s` is not the unit of the rule in the blob", unitNames[place]))
	}
	location, err := loadZone(zone.text())
	if err != nil {
		zone.fail(ofLater("`%s` %v", short(zone.text()), err))
		return
	}
	r.calendar = &calendar{unit: Unit(r.numbers[3]), zone: location}
}

func (o object) overrides(p *policy) map[string]keyPlan {
	if o.r.err != nil || !o.has("overrides") {
		return nil
	}
	out := map[string]keyPlan{}
	for _, element := range o.at("overrides").list(0) {
		own := element.object()
		endsMS := int64(endless)
		if own.has("until_ms") {
			endsMS = own.at("until_ms").integer(0, spanMaxUS)
		}
		key, made := own.at("key").text(), own.rules(p)
		if o.r.err != nil {
			return nil
		}
		out[key] = p.ending(made, endsMS)
	}
	return out
}
