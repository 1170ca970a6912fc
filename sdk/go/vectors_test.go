package sluicegate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	Cost    *int64       `json:"cost,omitempty"`
	MaxWait *int64       `json:"max_wait_us,omitempty"`
	ID      string       `json:"id,omitempty"`
	Windows [][]int64    `json:"windows,omitempty"`
	Rules   []vectorRule `json:"rules,omitempty"`
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
		list = append(list, r.rule(t))
	}
	set := ruleSetOf(t, list...)
	set.carry = carries[carryName]
	return set
}

// rule gives the same as a limit made in code has it.
func (r vectorRule) rule(t *testing.T) Rule {
	t.Helper()
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
		default:
			t.Fatalf("unknown parameter %s", name)
		}
	}
	return rule
}

var carries = map[string]carry{"": carryUsage, "usage": carryUsage, "proportional": carryProportional, "reset": carryReset}

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

// said puts down what Redis says is in use.
func (l *life) say(at moment, used int64) {
	rule := &l.set.rules[0]
	if l.states[0] != nil {
		rule.rewind(l.states[0], at)
	}
	l.states[0] = rule.withUsed(at, used)
}

func TestAReportOfACalendarWindowEndsWithIt(t *testing.T) {
	set := ruleSetOf(t, CalendarWindow(10, Day, "Europe/Berlin"))
	key, hour := emptyLife(set), int64(3600_000_000)
	today := window{year2026US, year2026US + 24*hour}
	key.say(moment{now: today.from + 23*hour, from: today.from, till: today.till}, 10)
	ask := func(now int64, cost int64, w window) bool {
		return key.decide(set, request{verb: verbCheck, cost: cost, now: now, windows: []window{w}}).allowed
	}
	tomorrow := window{today.till, today.till + 24*hour}
	if ask(today.till-1, 1, today) || !ask(today.till, 10, tomorrow) {
		t.Error("what Redis reported of yesterday counts today, or not yesterday")
	}
	// What passed here counts for the longest day, which has 25 hours, and a tenth of it at most.
	if ask(today.till+25*hour-1, 1, window{tomorrow.till, tomorrow.till + 24*hour}) || !ask(today.till+28*hour, 10, window{tomorrow.till, tomorrow.till + 24*hour}) {
		t.Error("what passed here does not count for a day")
	}
}

func TestGuavasTwoBeginWithNothingStoredUnderOtherRules(t *testing.T) {
	setOf := func(r Rule) *ruleSet { return ruleSetOf(t, r.Named("r")) }
	check := request{verb: verbCheck, cost: 1, now: year2026US}
	reserve := request{verb: verbReserve, cost: 1, now: year2026US, maxWait: spanMaxUS}
	bursty := setOf(SmoothBursty(10, time.Second))
	for name, c := range map[string]struct {
		before  *ruleSet
		later   *ruleSet
		pauseUS int64 // of the request after the first
	}{
		"a larger store":  {bursty, setOf(SmoothBursty(10, time.Second).MaxBurst(10 * time.Second)), 500_000},
		"a warm-up":       {bursty, setOf(SmoothWarmup(10, time.Second, 3*time.Second)), 500_000},
		"another one was": {setOf(TokenBucket(5, time.Second)), setOf(SmoothBursty(10, time.Second)), 0},
	} {
		key := emptyLife(c.before)
		for range 5 { // of the smooth ones, each is owed 100 ms
			r := check
			if c.before == bursty {
				r = reserve
			}
			if v := key.decide(c.before, r); !v.allowed {
				t.Fatalf("%s: %+v", name, v)
			}
		}
		if v := key.decide(c.later, reserve); v.wait != c.pauseUS {
			t.Errorf("%s: waits %d µs, expected %d", name, v.wait, c.pauseUS)
		}
	}
}

func TestSharesAreThoseOfTheWire(t *testing.T) {
	for place, e := range loadWire[struct {
		Algorithm string
		Params    map[string]json.RawMessage
		Steps     []vectorStep
	}](t, "shares.json", 16) {
		t.Run(fmt.Sprintf("%s/%d", e.Algorithm, place), func(t *testing.T) {
			rule := vectorRule{Name: "rule", Algorithm: e.Algorithm, Params: e.Params}
			set := vectorSet(t, []vectorRule{rule}, "")
			key := emptyLife(set)
			for place, step := range e.Steps {
				if step.Op == "said" {
					key.say(moment{now: step.AtUS}, *step.Cost)
					continue
				}
				step.Expect.Rule, step.Expect.Limit = "rule", set.rules[0].limit()
				step.compare(t, place, set, key.decide(set, step.request()))
			}
		})
	}
}
