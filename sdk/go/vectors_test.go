package sluicegate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

const specDir = "../../spec"

type vectorRule struct {
	Name      string                     `json:"name"`
	Algorithm string                     `json:"algorithm"`
	Params    map[string]json.RawMessage `json:"params"`
}

type vectorStep struct {
	AtUS    int64        `json:"at_us"`
	Op      string       `json:"op"`
	Cost    *int64       `json:"cost"`
	MaxWait *int64       `json:"max_wait_us"`
	ID      string       `json:"id"`
	Windows [][]int64    `json:"windows"`
	Rules   []vectorRule `json:"rules"`
	Carry   string       `json:"carry"`
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

type vector struct {
	Name  string       `json:"name"`
	Rules []vectorRule `json:"rules"`
	Steps []vectorStep `json:"steps"`
}

// loadVectors reads all lives of spec/vectors.
func loadVectors(t *testing.T) map[string]vector {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(specDir, "vectors/*/*.json"))
	if len(files) < 119 {
		t.Fatalf("%d vectors, expected 119 or more", len(files))
	}
	out := map[string]vector{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v vector
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(filepath.Dir(file))+"/"+v.Name] = v
	}
	return out
}

func vectorSet(t *testing.T, rules []vectorRule, carryName string) *ruleSet {
	t.Helper()
	var list []Rule
	for _, r := range rules {
		rule := Rule{name: r.Name, cold: 3, buckets: 10}
		for code, name := range algorithmNames {
			if name == r.Algorithm {
				rule.code = byte(code)
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
				rule.permits, rule.periodUS = rate.Permits, rate.PeriodUS
			case "burst":
				rule.burst = optional{true, int64(n)}
			case "initial":
				rule.initial = optional{true, int64(n)}
			case "refill":
				rule.interval = text == "interval"
			case "delay":
				rule.noDelay = text == "none"
				if text == "" {
					rule.delay = optional{true, int64(n)}
				}
			case "max_burst_us":
				rule.burstUS = optional{true, int64(n)}
			case "warmup_us":
				rule.warmupUS = int64(n)
			case "cold_factor":
				rule.cold = n
			case "limit":
				rule.limit = int64(n)
			case "window_us", "ttl_us":
				rule.windowUS = int64(n)
			case "align":
				rule.first = text == "first"
			case "calendar":
				rule.calendar = true
				for unit, name := range unitNames {
					if name == text {
						rule.unit = Unit(unit)
					}
				}
				if rule.zone == "" {
					rule.zone = "UTC"
				}
			case "time_zone":
				rule.zone = text
			case "buckets":
				rule.buckets = int64(n)
			case "queue":
				rule.queue = int64(n)
			default:
				t.Fatalf("unknown parameter %s", name)
			}
		}
		list = append(list, rule)
	}
	var p problems
	set := compileRules("rules", list, "", map[string]carry{"": carryUsage, "usage": carryUsage,
		"proportional": carryProportional, "reset": carryReset}[carryName], &p)
	if set == nil {
		t.Fatalf("rules: %v", p)
	}
	return set
}

var verbs = map[string]verb{
	"check": verbCheck, "reserve": verbReserve, "at_most": verbAtMost, "peek": verbPeek, "refund": verbRefund,
	"reset": verbReset, "acquire": verbAcquire, "release": verbRelease, "renew": verbRenew,
}

func (s vectorStep) request() request {
	r := request{verb: verbs[s.Op], cost: 1, maxWait: spanMaxUS, now: s.AtUS, permit: permitOf(s.ID)}
	if s.Cost != nil {
		r.cost = *s.Cost
	}
	if s.MaxWait != nil {
		r.maxWait = *s.MaxWait
	}
	for _, w := range s.Windows {
		if w != nil {
			r.windows = append(r.windows, window{w[0], w[1]})
		}
	}
	return r
}

// compare fails unless a verdict is what a step expects.
func (s vectorStep) compare(t *testing.T, place int, set *ruleSet, v verdict) {
	t.Helper()
	retry := never
	if s.Expect.Retry != nil {
		retry = *s.Expect.Retry
	}
	want := verdict{s.Expect.Allowed, v.rule, s.Expect.Granted, s.Expect.Wait, retry, s.Expect.Remaining, s.Expect.ResetAfter}
	if rule := set.rules[v.rule]; v != want || rule.name != s.Expect.Rule || rule.limit() != s.Expect.Limit {
		t.Fatalf("step %d (%s at %d): %+v by %s, limit %d, expected %+v by %s, limit %d",
			place, s.Op, s.AtUS, v, rule.name, rule.limit(), want, s.Expect.Rule, s.Expect.Limit)
	}
}

func TestTheKernelPassesAllVectors(t *testing.T) {
	for name, v := range loadVectors(t) {
		t.Run(name, func(t *testing.T) {
			set := vectorSet(t, v.Rules, "")
			key := life{set, make([]state, len(set.rules))}
			for place, step := range v.Steps {
				if step.Op == "configure" {
					set = vectorSet(t, step.Rules, step.Carry)
					continue
				}
				r := step.request()
				switch {
				case r.cost < 1 || r.cost > CostMax:
					if step.Expect.Error != "range" {
						t.Fatalf("step %d: expected an error of range", place)
					}
				case !set.supports(r.verb):
					if step.Expect.Error != "unsupported" {
						t.Fatalf("step %d: %s is unsupported", place, step.Op)
					}
				default:
					step.compare(t, place, set, key.decide(set, r))
				}
			}
		})
	}
}
