package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

func TestTheScriptIsThatOfTheSpecification(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(testkit.SpecDir, "redis/decide.lua"))
	if err != nil {
		t.Fatal(err)
	}
	sha, _ := os.ReadFile(filepath.Join(testkit.SpecDir, "redis/decide.sha1"))
	if Script != string(want) || scriptSHA() != string(bytes.TrimSpace(sha)) {
		t.Fatal("decide.lua is not spec/redis/decide.lua: copy it")
	}
}

func TestTheExampleOfTheProtocol(t *testing.T) {
	set := testkit.Set(t, testkit.Named("minute", testkit.Window(10, time.Minute)))
	plan := NewPolicyRules("orders", set, InstantOf(time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)))
	for _, pair := range [][2]string{
		{StateKey("orders", "alice"), "sg:{WYSeHag-hqRckSRns0jV-w}"},
		{StateKey("a", "b"), "sg:{z2q2E-OUI5H4jtaYVX4WgA}"},
		{hex.EncodeToString(plan.Blob), "060b0002000105050128cdd20eaf134a050000000000002440000000000000000000000000389c8c41000000000000000000000000000000009e5667e13a8860ea000000"},
		{plan.RulesKey, "sg:rules:amVe8lwjHh50SFePmz7I3w:9e5667e13a88"},
		{hex.EncodeToString(EncodeRequest(ClockServer, kernel.Request{Verb: kernel.VerbCheck, Cost: 1}, StateWriter{})), "010001000000"},
		{fmt.Sprintf("%x", kernel.PermitOf("job-7")), "fc7d5856c683d94f70813773fb8e0104"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s, expected %s", pair[0], pair[1])
		}
	}
}

func TestTheRulesOfALimitMadeInCodeAreInItsStates(t *testing.T) {
	for _, rules := range [][]kernel.Spec{
		{testkit.Bucket(10, time.Minute, 20)},
		{{Code: kernel.CodeSmoothWarmup, Permits: 3, PeriodUS: 7_000_000, WarmupUS: 11_000_000, Cold: 2.5}},
		{testkit.Named("second", testkit.Bucket(5, time.Second, 0)), {Name: "hour", Code: kernel.CodeSlidingLog, Limit: 100, WindowUS: 3_600_000_000}},
		{{Code: kernel.CodeConcurrency, Limit: 4, WindowUS: 60_000_000}},
	} {
		set, err := kernel.Compile("mail", rules, CallerRule)
		if err != nil {
			t.Fatal(err)
		}
		plan := NewLimitRules("mail", set)
		read, blob, err := ParseCallerHead(append(append([]byte(nil), plan.Head...), 1, 2, 3))
		if err != nil || !bytes.Equal(blob, plan.Blob) || !bytes.Equal(read.Bytes(), set.Bytes()) {
			t.Errorf("%v: %v", rules, err)
		}
	}
}

func TestKeysAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Policy, Generation string
		KeyHex             *string `json:"key_hex"`
		StateKey           string  `json:"state_key"`
		RulesKey           string  `json:"rules_key"`
		PermitID           string  `json:"permit_id"`
		PermitHex          string  `json:"permit_hex"`
	}](t, "keys.json", 48) {
		got, want := "", ""
		switch {
		case e.KeyHex != nil:
			got, want = StateKey(e.Policy, string(testkit.Unhex(t, *e.KeyHex))), e.StateKey
		case e.Generation != "":
			got, want = RulesKey(e.Policy, testkit.Unhex(t, e.Generation)), e.RulesKey
		default:
			got, want = fmt.Sprintf("%x", kernel.PermitOf(e.PermitID)), e.PermitHex
		}
		if got != want || want == "" {
			t.Errorf("%+v: %s", e, got)
		}
	}
}

// documentRule is a rule as limits.json has it: as in a policy document.
type documentRule map[string]json.RawMessage

// spanOf reads a time such as `10s`.
func spanOf(t *testing.T, text string) int64 {
	t.Helper()
	count, unit := int64(0), ""
	if n, err := fmt.Sscanf(text, "%d%s", &count, &unit); n < 2 {
		t.Fatalf("%s: %v", text, err)
	}
	return count * map[string]int64{"us": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}[unit]
}

// spec returns the same as a limit made in code has it.
func (d documentRule) spec(t *testing.T) kernel.Spec {
	t.Helper()
	of := testkit.VectorRule{}
	for name, raw := range d {
		if name == "name" {
			_ = json.Unmarshal(raw, &of.Name)
			continue
		}
		of.Algorithm = name
		_ = json.Unmarshal(raw, &of.Params)
	}
	for name, raw := range of.Params {
		text, member := "", name
		if json.Unmarshal(raw, &text) != nil {
			continue
		}
		switch name {
		case "rate":
			count, span, _ := strings.Cut(text, "/")
			permits, unit := int64(0), ""
			if _, _ = fmt.Sscanf(count, "%d%s", &permits, &unit); unit == "MiB" {
				permits <<= 20
			}
			if span[0] < '0' || span[0] > '9' {
				span = "1" + span
			}
			raw = json.RawMessage(fmt.Sprintf(`{"permits":%d,"period_us":%d}`, permits, spanOf(t, span)))
		case "window", "ttl", "warmup", "max_burst":
			member, raw = name+"_us", json.RawMessage(fmt.Sprint(spanOf(t, text)))
			delete(of.Params, name)
		}
		of.Params[member] = raw
	}
	return of.Spec(t)
}

func TestLimitsAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Document struct {
			Carry string
			Rules []documentRule
		}
		BlobHex string `json:"blob_hex"`
		HeadHex string `json:"head_hex"`
	}](t, "limits.json", 222) {
		var rules []kernel.Spec
		for _, rule := range e.Document.Rules {
			rules = append(rules, rule.spec(t))
		}
		set := testkit.Set(t, rules...)
		set.Carry = testkit.Carries[e.Document.Carry]
		p := NewLimitRules("p", set)
		if hex.EncodeToString(p.Blob) != e.BlobHex || hex.EncodeToString(p.Head) != e.HeadHex {
			t.Errorf("%s: %x", e.Document.Rules, p.Blob)
		}
		_, blob, err := ParseCallerHead(append(testkit.Unhex(t, e.HeadHex), 0, 1, 2, 255))
		if err != nil || hex.EncodeToString(blob) != e.BlobHex {
			t.Errorf("%s: read back as %x, %v", e.Document.Rules, blob, err)
		}
	}
}

// The permits left are below 0 where more than the limit is in use: of the rule that decided, and of each of several.
func TestWhatIsLeftMayBeBelowZero(t *testing.T) {
	one := testkit.Set(t, testkit.Window(50, time.Hour))
	two := testkit.Set(t, testkit.Named("a", testkit.Window(50, time.Hour)), testkit.Named("b", testkit.Window(9, time.Hour)))
	for _, c := range []struct {
		set   *kernel.RuleSet
		reply string
		left  []int64
	}{
		{one, "000000000000e803000000000000000000000000e8030000000000", []int64{0}},
		{one, "000000000000e80300000000007af4ffffffffffe8030000000000", []int64{-2950}},
		{one, "000000000000e8030000000000000000000000e0e8030000000000", []int64{-(1 << 53)}},
		{two, "000100000000e8030000000000ffffffffffffffe80300000000007af4ffffffffffffffffffffffff", []int64{-1, -2950, -1}},
	} {
		got, err := DecodeReply(string(testkit.Unhex(t, c.reply)), c.set, kernel.VerbCheck, 0)
		if err != nil || got.Verdict.Remaining != 0 || !slices.Equal(append([]int64{got.Decided}, got.Left...), c.left) {
			t.Errorf("%s: %+v, %v", c.reply, got, err)
		}
	}
}
