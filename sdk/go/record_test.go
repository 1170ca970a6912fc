package sluicegate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// compiledPolicies gives testdata/policies.json, the records of testdata/policies.yaml.
func compiledPolicies(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/policies.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recordWith gives a record of testdata/policies.json with changed members; one that is changed to nil is missing.
func recordWith(t testing.TB, name string, changed map[string]any) string {
	t.Helper()
	var file map[string]json.RawMessage
	var record map[string]any
	if err := json.Unmarshal([]byte(compiledPolicies(t)), &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file[name], &record); err != nil {
		t.Fatal(err)
	}
	for member, to := range changed {
		if record[member] = to; to == nil {
			delete(record, member)
		}
	}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rulesOf gives the members of a record that are its rules.
func rulesOf(set *ruleSet) map[string]any {
	var each []any
	for _, r := range set.rules {
		of := map[string]any{"name": r.name, "limit": r.limit()}
		if r.windowUS > 0 {
			of["window_us"] = r.windowUS
		}
		each = append(each, of)
	}
	return map[string]any{"blob": base64.RawURLEncoding.EncodeToString(set.bytes()), "life_ms": int64(lifeMaxMS), "each": each}
}

// recordOf gives the record of a version of a policy of the app `shop` that has these rules.
func recordOf(t testing.TB, version int64, rules ...Rule) string {
	t.Helper()
	changed := rulesOf(ruleSetOf(t, rules...))
	changed["version"], changed["app"] = version, "shop"
	return recordWith(t, "window", changed)
}

// ruleSetOf compiles rules for a test.
func ruleSetOf(t testing.TB, rules ...Rule) *ruleSet {
	t.Helper()
	set, err := compileRules(rules, "")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// planOf makes the plan of a policy `a` that was taken over at an instant.
func planOf(t testing.TB, instant int64, rules ...Rule) *plan {
	t.Helper()
	return ofPolicy("a", ruleSetOf(t, rules...), instant)
}

// readOf reads a record that is right.
func readOf(t testing.TB, name, text string, ownMS int64) *policy {
	t.Helper()
	p, err := readRecord(name, text, nil, ownMS)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

type wireRecord struct {
	Name       string
	Record     string
	Later      *bool
	Generation string
	SinceUS    int64  `json:"since_us"`
	BlobHex    string `json:"blob_hex"`
}

type wireRules struct {
	Blob   string
	LifeMS int64 `json:"life_ms"`
	Each   []struct {
		Name     string
		Limit    int64
		WindowUS int64 `json:"window_us"`
		Calendar *struct{ Unit, Zone string }
	}
}

// compare fails unless a plan has these rules, and reports what a plan of rules made in code would.
func (w wireRules) compare(t *testing.T, p *plan) {
	t.Helper()
	if got := base64.RawURLEncoding.EncodeToString(p.rules); got != w.Blob || p.lifeMS != w.LifeMS || len(p.set.rules) != len(w.Each) {
		t.Errorf("rules %s, life %d, expected %+v", got, p.lifeMS, w)
		return
	}
	for i, e := range w.Each {
		rule := p.set.rules[i]
		if rule.name != e.Name || rule.limit() != e.Limit || rule.windowUS != e.WindowUS || rule.reportedUS() != e.WindowUS {
			t.Errorf("rule %d is %s, %d, %d us, expected %+v", i, rule.name, rule.limit(), rule.reportedUS(), e)
		}
		if (rule.calendar != nil) != (e.Calendar != nil) {
			t.Errorf("rule %d has the calendar %v, expected %v", i, rule.calendar, e.Calendar)
		} else if e.Calendar != nil && (unitNames[rule.calendar.unit] != e.Calendar.Unit || !strings.EqualFold(rule.calendar.zone.String(), e.Calendar.Zone)) {
			t.Errorf("rule %d has the calendar %v, expected %v", i, rule.calendar, *e.Calendar)
		}
	}
}

func TestRecordsAreThoseOfTheWire(t *testing.T) {
	read := 0
	for _, e := range loadWire[wireRecord](t, "records.json", 517) {
		p, err := readRecord(e.Name, e.Record, nil, instantOf(time.UnixMicro(e.SinceUS)))
		if e.Later != nil {
			if isLater := errors.As(err, new(laterError)); err == nil || isLater != *e.Later {
				t.Errorf("%.500s: later %v: %v", e.Record, *e.Later, err)
			}
			continue
		}
		if errors.Is(err, errCostly) {
			continue
		}
		if read++; err != nil {
			t.Errorf("%s: %v", e.Record, err)
			continue
		}
		if got := hex.EncodeToString(p.plan.blob); got != e.BlobHex || hex.EncodeToString(generationOf(p.plan.rules)) != e.Generation {
			t.Errorf("%s: blob %s, expected %s", e.Record, got, e.BlobHex)
		}
		var all struct {
			wireRules
			Overrides []struct {
				wireRules
				Key     string
				UntilMS *int64 `json:"until_ms"`
			}
		}
		if err := json.Unmarshal([]byte(e.Record), &all); err != nil {
			t.Fatal(err)
		}
		all.compare(t, p.plan)
		if len(all.Overrides) != len(p.overrides) {
			t.Errorf("%s: %d overrides", e.Record, len(p.overrides))
		}
		for _, o := range all.Overrides {
			own := p.overrides[o.Key]
			o.compare(t, own.own)
			if own.endsMS != endless && own.endsMS != *o.UntilMS || (own.endsMS == endless) != (o.UntilMS == nil) {
				t.Errorf("%s: override %s ends at %d", e.Record, o.Key, own.endsMS)
			}
		}
	}
	if read < 420 {
		t.Errorf("%d records were read, expected 420 or more", read)
	}
}

func TestAnErrorOfARecordHasThePathOfTheMember(t *testing.T) {
	calendar := func(unit, zone any) []any {
		rules := rulesOf(ruleSetOf(t, CalendarWindow(5, Day, "UTC")))
		rules["each"].([]any)[0].(map[string]any)["calendar"] = map[string]any{"unit": unit, "zone": zone}
		rules["key"] = "k"
		return []any{rules}
	}
	for _, c := range []struct {
		changed map[string]any
		later   bool
		want    string
	}{
		{map[string]any{"record": 2}, true, "record: `2` is of a later version; this program reads 1"},
		{map[string]any{"record": 2, "apps": 7, "blob": nil, "overflow": nil}, true, "record: `2` is of a later version; this program reads 1"},
		{map[string]any{"record": json.Number("-1")}, true, "record: `-1` is of a later version; this program reads 1"},
		{map[string]any{"record": json.Number("1.0")}, false, "record: expected an integer"},
		{map[string]any{"record": nil}, false, "record: expected an integer"},
		{map[string]any{"record": nil, "Record": 1}, false, "record: expected an integer"},
		{map[string]any{"Record": 2, "BLOB": 7, "more": []int{1}}, false, ""},
		{map[string]any{"version": "3"}, false, "version: expected an integer"},
		{map[string]any{"version": -1}, false, "version: `-1` is outside 0..=9223372036854775807"},
		{map[string]any{"app": nil}, false, "app: expected a text"},
		{map[string]any{"apps": []any{}}, false, "apps: 0 elements, expected at least 1"},
		{map[string]any{"apps": []any{"x", nil}}, false, "apps[1]: expected a text"},
		{map[string]any{"on_store_failure": "ask"}, true, "on_store_failure: unknown value `ask`, expected one of `local`, `allow`, `deny`"},
		{map[string]any{"overflow": map[string]any{}}, false, "overflow.kind: expected a text"},
		{map[string]any{"overflow": map[string]any{"kind": "slow"}}, true, "overflow.kind: unknown value `slow`"},
		{map[string]any{"overflow": map[string]any{"kind": "degrade"}}, true, "overflow: `degrade` has neither `tag` nor `response`"},
		{map[string]any{"overflow": map[string]any{"kind": "queue", "max_wait_us": 0}}, false, "overflow.max_wait_us: `0` is outside 1..="},
		{map[string]any{"overflow": map[string]any{"kind": "degrade", "response": map[string]any{"status": 600}}}, false, "overflow.response.status"},
		{map[string]any{"overflow": map[string]any{"kind": "degrade", "response": map[string]any{"status": 200, "body": "", "headers": map[string]any{"a": 7}}}}, false, "overflow.response.headers.a"},
		{map[string]any{"life_ms": int64(lifeMaxMS + 1)}, false, "life_ms: "},
		{map[string]any{"blob": "CQABBQUBRUNJ5CLwUpc"}, true, "blob: rules of format 9; this program reads 2"},
		{map[string]any{"blob": "AgMBBQUBRUNJ5CLwUpc"}, true, "blob: rules with the unknown carry 3"},
		{map[string]any{"blob": "AgABDwABAAAAAAAAAAA"}, true, "blob: a rule of the unknown algorithm 15"},
		{map[string]any{"blob": "AgABCAIF0m6nJz3EJIYAAAAAAIijQAAAAACIKmFB"}, false, "blob: not the rules of format 2"}, // a log with a calendar
		{map[string]any{"each": []any{}}, false, "each: 0 elements"},
		{map[string]any{"each": []any{map[string]any{"name": "other", "limit": 5}}}, false, "each[0].name: `other` is not the name of the rule in the blob"},
		{map[string]any{"overrides": calendar("decade", "UTC")}, true, "overrides[0].each[0].calendar.unit: unknown value `decade`"},
		{map[string]any{"overrides": calendar("week", "UTC")}, false, "overrides[0].each[0].calendar.unit: `week` is not the unit of the rule in the blob"},
		{map[string]any{"overrides": calendar("day", "Mars/Base")}, true, "overrides[0].each[0].calendar.zone: `Mars/Base` is not a time zone of the IANA database"},
		{map[string]any{"overrides": calendar("day", nil)}, false, "overrides[0].each[0].calendar.zone: expected a text"},
		{map[string]any{"overrides": []any{map[string]any{"key": "k", "until_ms": "x"}}}, false, "overrides[0].until_ms: expected an integer"},
	} {
		_, err := readRecord("window", recordWith(t, "window", c.changed), nil, 1)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || c.want == "" || !strings.HasPrefix(err.Error(), c.want) || errors.As(err, new(laterError)) != c.later {
			t.Errorf("%v: %v, expected %s, later: %v", c.changed, err, c.want, c.later)
		}
	}
}

func TestAnOverrideEndsAndThenThePolicysRulesApplySinceThatInstant(t *testing.T) {
	const endMS = 1_798_740_000_000
	p := readOf(t, "override", recordWith(t, "override", nil), 7)
	before, after := p.planFor("vip", endMS*1000-1), p.planFor("vip", endMS*1000)
	if before.set.rules[0].limit() != 9 || after.set.rules[0].limit() != 1 || p.planFor("other", endMS*1000) != p.plan {
		t.Errorf("limits %d and %d, expected 9 and 1", before.set.rules[0].limit(), after.set.rules[0].limit())
	}
	since := instantOf(time.UnixMilli(endMS))
	if want := policyHead(p.plan.rules, since); !bytes.Equal(after.head, want) || bytes.Equal(p.plan.head, want) {
		t.Errorf("head %x, expected %x", after.head, want)
	}
	if again := p.planFor("vip", endMS*1000+1); again != after {
		t.Error("another plan, although nothing has changed")
	}
	if always := p.planFor("always", endMS*1000+1); always.set.rules[0].limit() != 7 || len(always.windows(endMS*1000)) != 1 {
		t.Error("an override without an end does not apply, or has no calendar")
	}
}

func TestCostlyRulesAreNotDecided(t *testing.T) {
	for _, c := range []struct {
		rule   Rule
		costly bool
	}{
		{SlidingLog(2500, 5*time.Second), false}, {SlidingLog(2501, 5*time.Second), true},
		{Concurrency(1000, 5*time.Second), false}, {Concurrency(1001, 5*time.Second), true},
	} {
		own := rulesOf(ruleSetOf(t, c.rule))
		override := map[string]any{"key": "k"}
		for member, of := range own {
			override[member] = of
		}
		for _, changed := range []map[string]any{own, {"overrides": []any{override}}} {
			text := recordWith(t, "window", changed)
			if _, err := readRecord("window", text, nil, 1); errors.Is(err, errCostly) != c.costly || errors.As(err, new(laterError)) {
				t.Errorf("%+v: %v", c.rule, err)
			}
			if _, err := InMemory(Compiled(`{"#format":1,"window":` + text + `}`)); errors.Is(err, ErrRules) != c.costly {
				t.Errorf("%+v: %v", c.rule, err)
			}
		}
		if _, err := InMemory(Rules("a", c.rule)); errors.Is(err, ErrRules) != c.costly {
			t.Errorf("%+v: %v", c.rule, err)
		}
		if _, err := newGate(t, newManual()).Limit("a", c.rule); errors.Is(err, ErrRules) != c.costly {
			t.Errorf("%+v: %v", c.rule, err)
		}
	}
}

func TestAFileOfRecordsThatIsNotReadIsAnErrorThatNamesThePolicy(t *testing.T) {
	for text, want := range map[string]string{
		``:                         "rules: not a file of `sluicegate policies compile`: unexpected end of JSON input",
		`{"policies":[]}`:          "rules: #format: ``, expected 1 of a file of `sluicegate policies compile`",
		`{"#format":2}`:            "rules: #format: `2`, expected 1 of a file of `sluicegate policies compile`",
		`{"#format":"1"}`:          "rules: #format: `\"1\"`, expected 1 of a file of `sluicegate policies compile`",
		`{"#format":1,"orders":7}`: "rules: policy `orders`: expected an object",
		`{"#format":1,"orders":` + recordWith(t, "window", map[string]any{"record": 2}) + `}`: "rules: policy `orders`: record: `2` is of a later version; this program reads 1",
		`{"#format":1,"orders":` + recordWith(t, "window", map[string]any{"each": nil}) + `}`: "rules: policy `orders`: each: expected a list",
	} {
		if _, err := InMemory(Compiled(text)); !errors.Is(err, ErrRules) || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	for want, option := range map[string]Option{
		"rules: policy `A`: name: `A` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`": Rules("A", PerSecond(1)),
		"rules: policy `a`: rules[0].token_bucket.rate: `0` is outside 1..=4294967296":        Rules("a", PerSecond(0)),
		"rules: policy `a`: rules: `0` rules, expected 1..=8":                                 Rules("a"),
	} {
		if _, err := InMemory(option); !errors.Is(err, ErrRules) || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

func TestRulesMadeInCodeReplaceThePolicyOfAFile(t *testing.T) {
	for _, options := range [][]Option{
		{Compiled(compiledPolicies(t)), Rules("window", PerHour(3))},
		{Rules("window", PerHour(3)), Compiled(compiledPolicies(t))},
	} {
		gate, err := InMemory(options...)
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if d, err := gate.Policy("window").Allow(ctx, "k"); err != nil || d.Limit != 3 || d.Rule != "token_bucket" {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := gate.Policy("deny").Allow(ctx, "k"); err != nil || d.Limit != 100 {
			t.Errorf("%+v, %v", d, err)
		}
		// A policy made in code has no owner: every app may do all.
		if _, err := gate.Policy("window").Reset(ctx, "k"); err != nil {
			t.Error(err)
		}
	}
}

// documentOf gives a rule as a policy document has it.
func documentOf(r Rule) map[string]any {
	us := func(n int64) string { return fmt.Sprint(n, "us") }
	of := map[string]any{}
	switch r.code {
	case codeTokenBucket, codeLeakyBucket, codeSmoothBursty, codeSmoothWarmup:
		of["rate"] = fmt.Sprint(r.permits, "/", us(r.periodUS))
	case codeConcurrency:
		of["limit"], of["ttl"] = r.limit, us(r.windowUS)
	default:
		if of["limit"] = r.limit; r.calendar {
			of["calendar"], of["time_zone"] = unitNames[r.unit], r.zone
		} else {
			of["window"] = us(r.windowUS)
		}
	}
	if r.burst.set {
		of["burst"] = r.burst.value
	}
	if r.initial.set {
		of["initial"] = r.initial.value
	}
	if r.interval {
		of["refill"] = "interval"
	}
	if r.delay.set {
		of["delay"] = r.delay.value
	} else if r.noDelay {
		of["delay"] = "none"
	}
	if r.burstUS.set {
		of["max_burst"] = us(r.burstUS.value)
	}
	if r.code == codeSmoothWarmup {
		of["warmup"], of["cold_factor"] = us(r.warmupUS), r.cold
	}
	if r.first {
		of["align"] = "first"
	}
	if r.code == codeSlidingWindow {
		of["buckets"] = r.buckets
	}
	return map[string]any{"name": r.name, algorithmNames[r.code]: of}
}

func TestRandomRulesAreEncodedAsByAServer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r, made, documents := rand.New(rand.NewPCG(seed, 2)), map[string]*ruleSet{}, []any(nil)
	zones := []string{"UTC", "Europe/Berlin", "asia/KOLKATA", "EST5EDT"}
	for i := range 500 {
		rules := randomRules(r)
		if r.IntN(4) == 0 {
			rules[0] = CalendarWindow(1+r.Int64N(1000), Unit(r.IntN(4)), zones[r.IntN(len(zones))]).Named(rules[0].name)
		}
		set := ruleSetOf(t, rules...)
		if set.tooCostly() {
			continue
		}
		var list []any
		for _, rule := range rules {
			list = append(list, documentOf(rule))
		}
		name := fmt.Sprint("p", i)
		made[name], documents = set, append(documents, map[string]any{"name": name, "rules": list})
	}
	in, err := json.Marshal(map[string]any{"policies": documents})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(serverProgram(t), "policies", "compile", "-")
	command.Stdin = bytes.NewReader(in)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, in)
	}
	compiled, err := readRecords(string(out), 7)
	if err != nil || len(compiled) != len(made) {
		t.Fatalf("%d policies, expected %d: %v", len(compiled), len(made), err)
	}
	for name, set := range made {
		theirs, own := compiled[name].plan, ofPolicy(name, set, 7)
		if !bytes.Equal(theirs.blob, own.blob) {
			t.Errorf("%s: %x, expected %x", name, own.blob, theirs.blob)
		}
		for i, rule := range own.set.rules {
			if they := theirs.set.rules[i]; rule.name != they.name || rule.windowUS != they.windowUS || (rule.calendar == nil) != (they.calendar == nil) {
				t.Errorf("%s: rule %+v, expected %+v", name, rule, they)
			}
		}
	}
}

// subscriber is a program in memory to which records are published, and its log.
type subscriber struct {
	*policies
	gate     *Gate
	logged   *bytes.Buffer
	revision int64
}

func newSubscriber() *subscriber {
	logged := &bytes.Buffer{}
	held := newPolicies(nil, slog.New(slog.NewTextHandler(logged, nil)), time.Now)
	e := &engine{store: &memoryStore{keys: map[string]*life{}}, policies: held, app: "shop", clock: newManual(), share: newShare()}
	return &subscriber{policies: held, gate: &Gate{decider: engineDecider{e}}, logged: logged}
}

// publish has a look find one policy `a`, and gives the limit by which it decides, or the error.
func (s *subscriber) publish(t *testing.T, record string) (int64, error) {
	t.Helper()
	s.revision++
	s.logged.Reset()
	s.take(map[string]string{"#format": "1", "#revision": fmt.Sprint(s.revision), "a": record}, false)
	d, err := s.gate.Policy("a").Peek(context.Background(), "k", 1)
	return d.Limit, err
}

const laterText = "policy: `a` cannot be read: record: `2` is of a later version; this program reads 1"

func TestALaterRecordIsRefusedByNameAndNoVersionDecides(t *testing.T) {
	later := recordWith(t, "window", map[string]any{"record": 2, "version": 2, "each": nil, "blob": 7})
	for _, first := range []string{"", recordOf(t, 1, PerHour(5))} {
		s := newSubscriber()
		if first != "" {
			if limit, err := s.publish(t, first); err != nil || limit != 5 {
				t.Fatal(limit, err)
			}
		}
		_, err := s.publish(t, later)
		if !errors.Is(err, ErrUnreadablePolicy) || err.Error() != laterText {
			t.Errorf("%v, expected %s", err, laterText)
		}
		if text := s.logged.String(); !strings.Contains(text, "policy=a") || !strings.Contains(text, "later version") {
			t.Errorf("it is not logged: %s", text)
		}
		if _, err := s.gate.Policy("b").Peek(context.Background(), "k", 1); !errors.Is(err, ErrUnknownPolicy) {
			t.Error(err)
		}
	}
}

func TestADamagedRecordLeavesWhatIsHeld(t *testing.T) {
	huge := recordWith(t, "window", map[string]any{"version": 2, "more": strings.Repeat("x", recordMax)})
	for name, damaged := range map[string]string{
		"a member is missing": recordWith(t, "window", map[string]any{"version": 2, "each": nil}),
		"no JSON":             "{",
		"huge":                huge,
		"huge and later":      strings.Replace(huge, `"record":1`, `"record":2`, 1),
		"costly":              recordWith(t, "window", rulesOf(ruleSetOf(t, SlidingLog(2501, time.Hour)))),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubscriber()
			if _, err := s.publish(t, damaged); !errors.Is(err, ErrUnreadablePolicy) || !strings.HasPrefix(err.Error(), "policy: `a` cannot be read: ") {
				t.Errorf("nothing is held: %v", err)
			}
			if limit, err := s.publish(t, recordOf(t, 1, PerHour(5))); err != nil || limit != 5 {
				t.Fatal(limit, err)
			}
			if limit, err := s.publish(t, damaged); err != nil || limit != 5 || s.held["a"].version != 1 {
				t.Errorf("what was held does not decide: %d, %v", limit, err)
			}
			if text := s.logged.String(); !strings.Contains(text, "policy=a") {
				t.Errorf("it is not logged: %s", text)
			}
			if limit, err := s.publish(t, recordOf(t, 3, PerHour(7))); err != nil || limit != 7 || s.logged.Len() > 0 {
				t.Errorf("the next one is not followed: %d, %v, %s", limit, err, s.logged)
			}
		})
	}
}

func TestLaterAndCurrentRecordsInTurnAreFollowedEachTime(t *testing.T) {
	s := newSubscriber()
	for version := int64(1); version < 7; version += 2 {
		if _, err := s.publish(t, recordWith(t, "window", map[string]any{"record": 2, "version": version})); err == nil || err.Error() != laterText {
			t.Errorf("version %d: %v", version, err)
		}
		if limit, err := s.publish(t, recordOf(t, version+1, PerHour(10+version))); err != nil || limit != 10+version {
			t.Errorf("version %d: %d, %v", version+1, limit, err)
		}
	}
}

func TestPublishedRecordsOfALaterVersionAreFollowedInRedis(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate := direct(t, addr)
	a := gate.Policy("a")
	for revision := int64(2); revision < 6; revision += 2 {
		if d, err := a.Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
			t.Fatalf("%+v, %v", d, err)
		}
		publishRecords(t, addr, revision, map[string]string{"a": recordWith(t, "window", map[string]any{"record": 2})})
		eventually(t, "the later record is not followed", func() bool {
			_, err := a.Peek(ctx, "k", 1)
			return errors.Is(err, ErrUnreadablePolicy) && err.Error() == laterText
		})
		publish(t, addr, revision+1, FixedWindow(5+revision, time.Hour))
		eventually(t, "the current record is not followed", func() bool {
			d, err := a.Peek(ctx, "k", 1)
			return err == nil && d.Mode == ModeStore && d.Limit == 5+revision
		})
	}
}

func TestAnOptionOfAnotherConstructorIsAnErrorThatNamesBoth(t *testing.T) {
	client := dial(t, freeAddr())
	direct := func(o Option) error { _, err := Direct(client, o); return err }
	memory := func(o Option) error { _, err := InMemory(o); return err }
	remote := func(address string) func(Option) error {
		return func(o Option) error { _, err := Remote(address, o); return err }
	}
	for want, err := range map[string]error{
		"option: `Compiled` does not belong to Direct, but to InMemory":                                     direct(Compiled("{}")),
		"option: `Rules` does not belong to Direct, but to InMemory":                                        direct(Rules("a", PerSecond(1))),
		"option: `Token` does not belong to Direct, but to Remote over HTTP, Remote over RESP":              direct(Token("t")),
		"option: `TLS` does not belong to Direct, but to Remote over HTTP, Remote over RESP":                direct(TLS(nil)),
		"option: `HTTPClient` does not belong to Direct, but to Remote over HTTP":                           direct(HTTPClient(nil)),
		"option: `Policies` does not belong to InMemory, but to Direct":                                     memory(Policies("a")),
		"option: `Nodes` does not belong to InMemory, but to Direct":                                        memory(Nodes(2)),
		"option: `Token` does not belong to InMemory, but to Remote over HTTP, Remote over RESP":            memory(Token("t")),
		"option: `Deadline` does not belong to InMemory, but to Direct, Remote over HTTP, Remote over RESP": memory(Deadline(time.Second)),
		"option: `Nodes` does not belong to Remote over HTTP, but to Direct":                                remote("http://gate")(Nodes(2)),
		"option: `Policies` does not belong to Remote over RESP, but to Direct":                             remote("resp://gate:1")(Policies("a")),
		"option: `HTTPClient` does not belong to Remote over RESP, but to Remote over HTTP":                 remote("resp://gate:1")(HTTPClient(nil)),
	} {
		var misplaced *OptionError
		if !errors.As(err, &misplaced) || err.Error() != want || len(misplaced.BelongsTo) == 0 {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	for _, err := range []error{remote("resp://gate:1")(Deadline(time.Second)), remote("http://gate")(Token("t")), memory(App("shop"))} {
		if err != nil {
			t.Error(err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, name := range []string{"window", "override", "response", "queue", "partner"} {
		f.Add(recordWith(f, name, nil))
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readRecord("a", text, nil, 1)
		if (err == nil) != (p != nil) {
			t.Fatalf("%s: %v, %v", text, p, err)
		}
		if err != nil {
			return
		}
		now := int64(year2026US)
		for _, pl := range append([]*plan{p.plan}, p.planFor("vip", now), p.planFor("always", now)) {
			l := emptyLife(pl.set)
			l.decide(pl.set, request{verb: verbPeek, cost: 1, now: now, windows: pl.windows(now)})
		}
	})
}
