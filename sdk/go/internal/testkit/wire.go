package testkit

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// root is the folder of the SDK, and SpecDir that of the specification.
var (
	root = func() string {
		_, file, _, _ := runtime.Caller(0)
		return filepath.Join(filepath.Dir(file), "../..")
	}()
	SpecDir = filepath.Join(root, "../../spec")
)

// LoadWire reads the entries of a file of spec/wire, of which there are so many or more.
func LoadWire[T any](t testing.TB, file string, most int) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(SpecDir, "wire", file))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Entries []T `json:"entries"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(all.Entries) < most {
		t.Fatalf("%s: %d entries, expected %d or more", file, len(all.Entries), most)
	}
	return all.Entries
}

// Unhex reads bytes in hex.
func Unhex(t testing.TB, text string) []byte {
	t.Helper()
	out, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Decision is a decision as the files of spec/wire have it.
type Decision struct {
	Allowed    bool   `json:"allowed"`
	Granted    int64  `json:"granted"`
	Wait       int64  `json:"wait_us"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	Retry      *int64 `json:"retry_after_us"`
	ResetAfter int64  `json:"reset_after_us"`
	Rule       string `json:"rule"`
	Mode       string `json:"mode,omitempty"`
	Way        string `json:"way,omitempty"`
	Error      string `json:"error,omitempty"`

	InUse map[string]int64 `json:"in_use,omitempty"`
}

// MarshalJSON returns an error alone.
func (d Decision) MarshalJSON() ([]byte, error) {
	if d.Error != "" {
		return json.Marshal(map[string]string{"error": d.Error})
	}
	type fields Decision
	return json.Marshal(fields(d))
}

func (d Decision) String() string {
	text, _ := json.Marshal(d)
	return string(text)
}

// Record is an entry of records.json.
type Record struct {
	Name       string
	Record     string
	Later      *bool
	Generation string
	SinceUS    int64  `json:"since_us"`
	BlobHex    string `json:"blob_hex"`
}

// RecordRules are the members of a record that are its rules.
type RecordRules struct {
	Blob  string
	TTLMS int64 `json:"life_ms"`
	Each  []struct {
		Name     string
		Limit    int64
		WindowUS int64 `json:"window_us"`
		Calendar *struct{ Unit, Zone string }
	}
}

// VectorRule is a rule as the vectors have it.
type VectorRule struct {
	Name      string                     `json:"name"`
	Algorithm string                     `json:"algorithm"`
	Params    map[string]json.RawMessage `json:"params"`
}

// VectorStep is a request at an instant, and what it gets.
type VectorStep struct {
	AtUS    int64        `json:"at_us"`
	Op      string       `json:"op"`
	Cost    *int64       `json:"cost,omitempty"`
	MaxWait *int64       `json:"max_wait_us,omitempty"`
	ID      string       `json:"id,omitempty"`
	Windows [][]int64    `json:"windows,omitempty"`
	Rules   []VectorRule `json:"rules,omitempty"`
	Carry   string       `json:"carry,omitempty"`
	Expect  *struct {
		Error      string `json:"error"`
		Allowed    bool   `json:"allowed"`
		Granted    int64  `json:"granted"`
		Wait       int64  `json:"wait_us"`
		Limit      int64  `json:"limit"`
		Remaining  int64  `json:"remaining"`
		Retry      *int64 `json:"retry_after_us"`
		ResetAfter int64  `json:"reset_after_us"`
		Rule       string `json:"rule"`
	} `json:"expect"`
}

// Vector is a history of one key.
type Vector struct {
	Name  string       `json:"name"`
	Rules []VectorRule `json:"rules"`
	Steps []VectorStep `json:"steps"`
}

// LoadVectors reads all histories of spec/vectors.
func LoadVectors(t testing.TB) map[string]Vector {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(SpecDir, "vectors/*/*.json"))
	if len(files) < 119 {
		t.Fatalf("%d vectors, expected 119 or more", len(files))
	}
	out := map[string]Vector{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v Vector
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(filepath.Dir(file))+"/"+v.Name] = v
	}
	return out
}

// VectorSet compiles the rules of a vector.
func VectorSet(t testing.TB, rules []VectorRule, carryName string) *kernel.RuleSet {
	t.Helper()
	var list []kernel.Spec
	for _, r := range rules {
		list = append(list, r.Spec(t))
	}
	set := Set(t, list...)
	set.Carry = Carries[carryName]
	return set
}

// Spec returns the rule as a limit made in code has it.
func (r VectorRule) Spec(t testing.TB) kernel.Spec {
	t.Helper()
	rule := kernel.Spec{Name: r.Name, Cold: 3, Buckets: 10}
	for code, name := range kernel.AlgorithmNames {
		if name == r.Algorithm {
			rule.Code = byte(code)
		}
	}
	for name, raw := range r.Params {
		var n float64
		var text string
		var rate struct {
			Permits  int64 `json:"permits"`
			PeriodUS int64 `json:"period_us"`
		}
		_ = json.Unmarshal(raw, &n)
		_ = json.Unmarshal(raw, &text)
		_ = json.Unmarshal(raw, &rate)
		switch name {
		case "rate":
			rule.Permits, rule.PeriodUS = rate.Permits, rate.PeriodUS
		case "burst":
			rule.Burst = kernel.Optional{Set: true, Value: int64(n)}
		case "initial":
			rule.Initial = kernel.Optional{Set: true, Value: int64(n)}
		case "refill":
			rule.Interval = text == "interval"
		case "delay":
			rule.NoDelay = text == "none"
			if text == "" {
				rule.Delay = kernel.Optional{Set: true, Value: int64(n)}
			}
		case "max_burst_us":
			rule.BurstUS = kernel.Optional{Set: true, Value: int64(n)}
		case "warmup_us":
			rule.WarmupUS = int64(n)
		case "cold_factor":
			rule.Cold = n
		case "limit":
			rule.Limit = int64(n)
		case "window_us", "ttl_us":
			rule.WindowUS = int64(n)
		case "align":
			rule.First = text == "first"
		case "calendar":
			rule.Calendar = true
			for unit, name := range kernel.UnitNames {
				if name == text {
					rule.Unit = unit
				}
			}
			if rule.Zone == "" {
				rule.Zone = "UTC"
			}
		case "time_zone":
			rule.Zone = text
		case "buckets":
			rule.Buckets = int64(n)
		default:
			t.Fatalf("unknown parameter %s", name)
		}
	}
	return rule
}

// Carries and Verbs are by their names in the vectors.
var Carries = map[string]kernel.Carry{"": kernel.CarryUsage, "usage": kernel.CarryUsage, "proportional": kernel.CarryProportional, "reset": kernel.CarryReset}

var Verbs = map[string]kernel.Verb{
	"check": kernel.VerbCheck, "reserve": kernel.VerbReserve, "at_most": kernel.VerbAtMost, "peek": kernel.VerbPeek, "refund": kernel.VerbRefund,
	"reset": kernel.VerbReset, "acquire": kernel.VerbAcquire, "release": kernel.VerbRelease, "renew": kernel.VerbRenew,
}

// Request returns what the step requests.
func (s VectorStep) Request() kernel.Request {
	r := kernel.Request{Verb: Verbs[s.Op], Cost: 1, MaxWait: kernel.SpanMaxUS, Now: s.AtUS, Permit: kernel.PermitOf(s.ID)}
	if s.Cost != nil {
		r.Cost = *s.Cost
	}
	if s.MaxWait != nil {
		r.MaxWait = *s.MaxWait
	}
	for _, w := range s.Windows {
		if w != nil {
			r.Windows = append(r.Windows, kernel.Window{From: w[0], Till: w[1]})
		}
	}
	return r
}

// Compare fails unless a verdict is what a step expects.
func (s VectorStep) Compare(t testing.TB, place int, set *kernel.RuleSet, v kernel.Verdict) {
	t.Helper()
	retry := kernel.Never
	if s.Expect.Retry != nil {
		retry = *s.Expect.Retry
	}
	want := kernel.Verdict{Allowed: s.Expect.Allowed, Rule: v.Rule, Granted: s.Expect.Granted, Wait: s.Expect.Wait, Retry: retry, Remaining: s.Expect.Remaining, ResetAfter: s.Expect.ResetAfter}
	if rule := set.Rules[v.Rule]; v != want || rule.Name != s.Expect.Rule || rule.Limit() != s.Expect.Limit {
		t.Fatalf("step %d (%s at %d): %+v by %s, limit %d, expected %+v by %s, limit %d",
			place, s.Op, s.AtUS, v, rule.Name, rule.Limit(), want, s.Expect.Rule, s.Expect.Limit)
	}
}
