package policy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// readOf reads a record that is right.
func readOf(t testing.TB, name, text string, ownMS int64) *Policy {
	t.Helper()
	p, err := Read(name, text, nil, ownMS)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// compare fails unless a plan has these rules, and reports what a plan of rules made in code would.
func compare(t *testing.T, w testkit.RecordRules, p *wire.CompiledRules) {
	t.Helper()
	if got := base64.RawURLEncoding.EncodeToString(p.Rules); got != w.Blob || p.TTLMS != w.TTLMS || len(p.Set.Rules) != len(w.Each) {
		t.Errorf("rules %s, ttl %d, expected %+v", got, p.TTLMS, w)
		return
	}
	for i, e := range w.Each {
		rule := p.Set.Rules[i]
		if rule.Name != e.Name || rule.Limit() != e.Limit || rule.WindowUS != e.WindowUS || rule.ReportedUS() != e.WindowUS {
			t.Errorf("rule %d is %s, %d, %d us, expected %+v", i, rule.Name, rule.Limit(), rule.ReportedUS(), e)
		}
		if (rule.Calendar != nil) != (e.Calendar != nil) {
			t.Errorf("rule %d has the calendar %v, expected %v", i, rule.Calendar, e.Calendar)
		} else if e.Calendar != nil && (kernel.UnitNames[rule.Calendar.Unit] != e.Calendar.Unit || !strings.EqualFold(rule.Calendar.Zone.String(), e.Calendar.Zone)) {
			t.Errorf("rule %d has the calendar %v, expected %v", i, rule.Calendar, *e.Calendar)
		}
	}
}

func TestRecordsAreThoseOfTheWire(t *testing.T) {
	read := 0
	for _, e := range testkit.LoadWire[testkit.Record](t, "records.json", 517) {
		p, err := Read(e.Name, e.Record, nil, wire.InstantOf(time.UnixMicro(e.SinceUS)))
		if e.Later != nil {
			if isLater := errors.As(err, new(kernel.LaterError)); err == nil || isLater != *e.Later {
				t.Errorf("%.500s: later %v: %v", e.Record, *e.Later, err)
			}
			continue
		}
		if errors.Is(err, kernel.ErrCostly) {
			continue
		}
		if read++; err != nil {
			t.Errorf("%s: %v", e.Record, err)
			continue
		}
		if got := hex.EncodeToString(p.Rules.Blob); got != e.BlobHex || hex.EncodeToString(wire.GenerationOf(p.Rules.Rules)) != e.Generation {
			t.Errorf("%s: blob %s, expected %s", e.Record, got, e.BlobHex)
		}
		var all struct {
			testkit.RecordRules
			Overrides []struct {
				testkit.RecordRules
				Key     string
				UntilMS *int64 `json:"until_ms"`
			}
		}
		if err := json.Unmarshal([]byte(e.Record), &all); err != nil {
			t.Fatal(err)
		}
		compare(t, all.RecordRules, p.Rules)
		if len(all.Overrides) != len(p.overrides) {
			t.Errorf("%s: %d overrides", e.Record, len(p.overrides))
		}
		for _, o := range all.Overrides {
			own := p.overrides[o.Key]
			compare(t, o.RecordRules, own.rules)
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
		rules := testkit.RulesOf(testkit.Set(t, kernel.Spec{Code: kernel.CodeFixedWindow, Limit: 5, Calendar: true, Zone: "UTC"}))
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
		{map[string]any{"life_ms": int64(wire.TTLMaxMS + 1)}, false, "life_ms: "},
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
		_, err := Read("window", testkit.RecordWith(t, "window", c.changed), nil, 1)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || c.want == "" || !strings.HasPrefix(err.Error(), c.want) || errors.As(err, new(kernel.LaterError)) != c.later {
			t.Errorf("%v: %v, expected %s, later: %v", c.changed, err, c.want, c.later)
		}
	}
}

// The reader of JSON replaces what is not UTF-8, so two keys of overrides would be one.
func TestARecordThatIsNotUTF8IsDamaged(t *testing.T) {
	text := testkit.RecordWith(t, "override", map[string]any{"app": "shop"})
	_, err := Read("p", strings.Replace(text, `"shop"`, "\"sh\xffop\"", 1), nil, 1)
	if err == nil || err.Error() != "record: not UTF-8" || errors.As(err, new(kernel.LaterError)) {
		t.Error(err)
	}
}

func TestAnOverrideEndsAndThenThePolicysRulesApplySinceThatInstant(t *testing.T) {
	const endMS = 1_798_740_000_000
	p := readOf(t, "override", testkit.RecordWith(t, "override", nil), 7)
	before, after := p.RulesFor("vip", endMS*1000-1), p.RulesFor("vip", endMS*1000)
	if before.Set.Rules[0].Limit() != 9 || after.Set.Rules[0].Limit() != 1 || p.RulesFor("other", endMS*1000) != p.Rules {
		t.Errorf("limits %d and %d, expected 9 and 1", before.Set.Rules[0].Limit(), after.Set.Rules[0].Limit())
	}
	since := wire.InstantOf(time.UnixMilli(endMS))
	if want := wire.PolicyHead(p.Rules.Rules, since); !bytes.Equal(after.Head, want) || bytes.Equal(p.Rules.Head, want) {
		t.Errorf("head %x, expected %x", after.Head, want)
	}
	if again := p.RulesFor("vip", endMS*1000+1); again != after {
		t.Error("another plan, although nothing has changed")
	}
	if always := p.RulesFor("always", endMS*1000+1); always.Set.Rules[0].Limit() != 7 || len(always.Windows(endMS*1000)) != 1 {
		t.Error("an override without an end does not apply, or has no calendar")
	}
}

// documentOf returns a rule as a policy document has it.
func documentOf(r kernel.Spec) map[string]any {
	us := func(n int64) string { return fmt.Sprint(n, "us") }
	of := map[string]any{}
	switch r.Code {
	case kernel.CodeTokenBucket, kernel.CodeLeakyBucket, kernel.CodeSmoothBursty, kernel.CodeSmoothWarmup:
		of["rate"] = fmt.Sprint(r.Permits, "/", us(r.PeriodUS))
	case kernel.CodeConcurrency:
		of["limit"], of["ttl"] = r.Limit, us(r.WindowUS)
	default:
		if of["limit"] = r.Limit; r.Calendar {
			of["calendar"], of["time_zone"] = kernel.UnitNames[r.Unit], r.Zone
		} else {
			of["window"] = us(r.WindowUS)
		}
	}
	if r.Burst.Set {
		of["burst"] = r.Burst.Value
	}
	if r.Initial.Set {
		of["initial"] = r.Initial.Value
	}
	if r.Interval {
		of["refill"] = "interval"
	}
	if r.Delay.Set {
		of["delay"] = r.Delay.Value
	} else if r.NoDelay {
		of["delay"] = "none"
	}
	if r.BurstUS.Set {
		of["max_burst"] = us(r.BurstUS.Value)
	}
	if r.Code == kernel.CodeSmoothWarmup {
		of["warmup"], of["cold_factor"] = us(r.WarmupUS), r.Cold
	}
	if r.First {
		of["align"] = "first"
	}
	if r.Code == kernel.CodeSlidingWindow {
		of["buckets"] = r.Buckets
	}
	return map[string]any{"name": r.Name, kernel.AlgorithmNames[r.Code]: of}
}

func TestRandomRulesAreEncodedAsByAServer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r, made, documents := rand.New(rand.NewPCG(seed, 2)), map[string]*kernel.RuleSet{}, []any(nil)
	zones := []string{"UTC", "Europe/Berlin", "asia/KOLKATA", "EST5EDT"}
	for i := range 500 {
		rules := testkit.RandomRules(r)
		if r.IntN(4) == 0 {
			rules[0] = kernel.Spec{Name: rules[0].Name, Code: kernel.CodeFixedWindow, Limit: 1 + r.Int64N(1000), Calendar: true,
				Unit: r.IntN(4), Zone: zones[r.IntN(len(zones))]}
		}
		set := testkit.Set(t, rules...)
		if set.TooCostly() {
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
	command := exec.Command(testkit.ServerProgram(t), "policies", "compile", "-")
	command.Stdin = bytes.NewReader(in)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, in)
	}
	compiled, err := ReadFile(string(out), 7)
	if err != nil || len(compiled) != len(made) {
		t.Fatalf("%d policies, expected %d: %v", len(compiled), len(made), err)
	}
	for name, set := range made {
		theirs, own := compiled[name].Rules, wire.NewPolicyRules(name, set, 7)
		if !bytes.Equal(theirs.Blob, own.Blob) {
			t.Errorf("%s: %x, expected %x", name, own.Blob, theirs.Blob)
		}
		for i, rule := range own.Set.Rules {
			if they := theirs.Set.Rules[i]; rule.Name != they.Name || rule.WindowUS != they.WindowUS || (rule.Calendar == nil) != (they.Calendar == nil) {
				t.Errorf("%s: rule %+v, expected %+v", name, rule, they)
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, name := range []string{"window", "override", "response", "queue", "partner"} {
		f.Add(testkit.RecordWith(f, name, nil))
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Read("a", text, nil, 1)
		if (err == nil) != (p != nil) {
			t.Fatalf("%s: %v, %v", text, p, err)
		}
		if err != nil {
			return
		}
		now := int64(kernel.Year2026US)
		for _, pl := range append([]*wire.CompiledRules{p.Rules}, p.RulesFor("vip", now), p.RulesFor("always", now)) {
			l := kernel.NewKeyState(pl.Set)
			l.Decide(pl.Set, kernel.Request{Verb: kernel.VerbPeek, Cost: 1, Now: now, Windows: pl.Windows(now)})
		}
	})
}

// TestPoliciesAreFollowedAsTheVectorsSay plays the histories of spec/vectors/redis-policies.json: it writes the hash as they
// say that servers did, and looks.
func TestPoliciesAreFollowedAsTheVectorsSay(t *testing.T) {
	client := testkit.Dial(t, testkit.RedisAddr(t))
	ctx := context.Background()
	text, err := os.ReadFile(testkit.SpecDir + "/vectors/redis-policies.json")
	if err != nil {
		t.Fatal(err)
	}
	var histories []struct {
		Name  string `json:"name"`
		Steps []struct {
			Op      string                     `json:"op"`
			Hash    map[string]json.RawMessage `json:"hash"`
			Message string                     `json:"message"`
			Holds   struct {
				Revision *int64           `json:"revision"`
				Policies map[string]int64 `json:"policies"`
			} `json:"holds"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(text, &histories); err != nil {
		t.Fatal(err)
	}
	for _, history := range histories {
		t.Run(history.Name, func(t *testing.T) {
			client.Del(ctx, PoliciesKey)
			f := NewFollower(NewCatalog(nil, time.Now), wire.Conn{Client: client})
			for place, step := range history.Steps {
				switch step.Op {
				case "found", "publish":
					client.Del(ctx, PoliciesKey)
					for name, raw := range step.Hash {
						value := string(raw)
						if name[0] == '#' {
							_ = json.Unmarshal(raw, &value)
						}
						client.HSet(ctx, PoliciesKey, name, value)
					}
					continue
				case "look":
					if err := f.Look(ctx, false); err != nil {
						t.Fatal(err)
					}
				case "hear":
					if f.isReasonToLook(&redis.Message{Payload: step.Message}) {
						if err := f.Look(ctx, true); err != nil {
							t.Fatal(err)
						}
					}
				}
				want := int64(-1)
				if step.Holds.Revision != nil {
					want = *step.Holds.Revision
				}
				ok := f.revision == want && len(f.held) == len(step.Holds.Policies)
				for name, version := range step.Holds.Policies {
					ok = ok && f.held[name] != nil && f.held[name].Version == version
				}
				if !ok {
					t.Fatalf("step %d: revision %d of %v, expected %+v", place, f.revision, f.held, step.Holds)
				}
			}
		})
	}
}

func TestTheRevisionThatIsHeldIsNewsAfterRedisWasEmpty(t *testing.T) {
	f := NewFollower(NewCatalog(nil, time.Now), wire.Conn{})
	published := map[string]string{"#format": "1", "#revision": "7", "#clock": "server"}
	hears := func(message string) bool { return f.isReasonToLook(&redis.Message{Payload: message}) }
	for step, c := range []struct {
		found map[string]string
		want  bool
	}{{published, false}, {nil, true}, {published, false}} {
		f.Take(c.found, false)
		if hears("7") != c.want || !hears("8") || hears("no number") {
			t.Errorf("step %d: after %v a message with the revision that is held is a reason to look: %v", step, c.found, !c.want)
		}
	}
}

func TestAVersionIsTakenOverWhenAServerDid(t *testing.T) {
	const own = 5_000
	held := func(version, instant int64) *Policy {
		return &Policy{Version: version, instantMS: instant}
	}
	for _, c := range []struct {
		since  any
		before *Policy
		want   int64
	}{
		{json.Number("1767225607000"), nil, 7_000},
		{json.Number("1767225607000"), held(1, 6_000), 7_000},
		{json.Number("1767225607000"), held(1, 7_000), 7_001}, // another version comes after the one before
		{json.Number("1767225607000"), held(2, 9_000), 9_000}, // the same one keeps its instant
		{json.Number("1767225607000"), held(2, 6_000), 6_000},
		{json.Number("0"), nil, 0},
		{json.Number("9007199254740991"), nil, wire.InstantMaxMS},
		{json.Number("9007199254740991"), held(1, wire.InstantMaxMS), wire.InstantMaxMS},
		{nil, nil, own},
		{nil, held(1, 9_000), 9_001},
		{nil, held(2, 9_000), 9_000},
		{json.Number("9007199254740992"), nil, own},
		{json.Number("-1"), nil, own},
		{json.Number("7.5"), nil, own},
		{"1767225607000", nil, own},
		{json.RawMessage("null"), nil, own},
		{json.Number("99999999999999999999"), nil, own},
	} {
		p, err := Read("a", testkit.RecordWith(t, "window", map[string]any{"version": 2, "since_ms": c.since}), c.before, own)
		if err != nil {
			t.Fatal(err)
		}
		if head := wire.ReadInt(p.Rules.Head[wire.GenerationLen:]); p.instantMS != c.want || head != c.want {
			t.Errorf("%v after %+v: %d, %d in the head, expected %d", c.since, c.before, p.instantMS, head, c.want)
		}
	}
}
