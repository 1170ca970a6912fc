package sluicegate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDocumentsCompileToTheRulesOfAServer(t *testing.T) {
	text, err := os.ReadFile("testdata/compiled.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Document json.RawMessage `json:"document"`
		Compiled json.RawMessage `json:"compiled"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		d, err := parseDocument(string(c.Document))
		if err != nil {
			t.Fatalf("%s: %v", c.Document, err)
		}
		own, _ := policyOf(d, 7)
		theirs := &policy{name: d.name, instantMS: 7}
		v, _ := parseJSON(string(c.Compiled))
		if theirs.useCompiled(v); theirs.plan == nil {
			t.Fatalf("%s: compiled rules cannot be read", d.name)
		}
		compare := func(what string, a, b *plan) {
			if a == nil || b == nil || !bytes.Equal(a.blob, b.blob) || a.lifeMS != b.lifeMS || !slices.Equal(a.windowsUS, b.windowsUS) {
				t.Errorf("%s of %s: %+v, expected %+v", what, d.name, a, b)
			}
		}
		compare("rules", own.plan, theirs.plan)
		for key := range theirs.overrides {
			a, b := own.overrides[key], theirs.overrides[key]
			compare("override "+key, a.own, b.own)
			if a.endsMS != b.endsMS {
				t.Errorf("override %s of %s ends at %d, expected %d", key, d.name, a.endsMS, b.endsMS)
			}
		}
	}
}

func TestAnOverrideEndsAndThenThePolicysRulesAreInForceSinceThatInstant(t *testing.T) {
	const endMS = 1_798_740_000_000
	d, err := parseDocument(`{"name":"p","rules":[{"fixed_window":{"limit":1,"window":"1h"}}],"overrides":[` +
		`{"key":"vip","until":"2026-12-31T18:00:00Z","rules":[{"fixed_window":{"limit":9,"window":"1h"}}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policyOf(d, 7)
	if err != nil {
		t.Fatal(err)
	}
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
}

func TestTheExampleOfTheDocumentPageCanBeRead(t *testing.T) {
	page, err := os.ReadFile(specDir + "/document.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```json\n")
	example, _, _ := strings.Cut(after, "```")
	p, err := readPolicy("orders.create", example, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p.version != 7 || p.app != "shop" || p.overflow.queueUS != 500_000 ||
		p.planFor("203.0.113.7", 0) == p.plan || len(p.plan.set.rules) != 2 {
		t.Errorf("%+v", p)
	}
}

// withRule is a document of one rule.
func withRule(rule string) string { return `{"name":"a","rules":[` + rule + `]}` }

func TestWhatCannotBeReadIsSaidWithItsPath(t *testing.T) {
	window := `{"fixed_window":{"limit":5,"window":"1m"}}`
	for text, path := range map[string]string{
		`{`:                                     "byte 1",
		`[]`:                                    "expected an object",
		`{"name":"a","rules":[]}`:               "rules: 0 elements",
		`{"rules":[` + window + `]}`:            "name: missing",
		`{"name":"A","rules":[` + window + `]}`: "name: `A`",
		`{"name":"a","rules":[` + window + `],"x":1}`:                                             "x: unknown field",
		`{"name":"a","rules":[` + window + `],"apps":null}`:                                       "apps: expected a list",
		`{"name":"a","rules":[` + window + `],"apps":["b","b"]}`:                                  "apps[1]",
		`{"name":"a","rules":[` + window + `],"overflow":"queue"}`:                                "overflow",
		`{"name":"a","rules":[` + window + `],"overflow":{"queue":{}}}`:                           "overflow.queue.max_wait",
		`{"name":"a","rules":[` + window + `],"on_overload":{"wait":"11s"}}`:                      "on_overload.wait",
		`{"name":"a","rules":[` + window + `],"overrides":[{"key":"","rules":[` + window + `]}]}`: "overrides[0].key",
		`{"name":"a\ud800","rules":[` + window + `]}`:                                             "surrogate",
		`{"name":"a","name":"a","rules":[` + window + `]}`:                                        "twice",
		`{"name":"a","rules":[` + window + `],"match":{}}`:                                        "match",
		`{"name":"a","rules":[` + window + `],"key":["cookie"]}`:                                  "key[0]",
		`{"name":"a","rules":[` + window + `,` + window + `]}`:                                    "rules[0].name",
		withRule(`{}`):          "rules[0]: 0 algorithms",
		withRule(`{"gcar":{}}`): "rules[0]: unknown algorithm `gcar`",
		withRule(`{"fixed_window":{"limit":5.0,"window":"1m"}}`):                       "rules[0].fixed_window.limit",
		withRule(`{"fixed_window":{"limit":"5","window":"1m"}}`):                       "rules[0].fixed_window.limit",
		withRule(`{"fixed_window":{"limit":-0,"window":"1m"}}`):                        "rules[0].fixed_window.limit",
		withRule(`{"fixed_window":{"limit":0,"window":"1m"}}`):                         "rules[0].fixed_window.limit: `0` is outside 1..=4294967296",
		withRule(`{"fixed_window":{"limit":5,"window":"1week"}}`):                      "rules[0].fixed_window.window",
		withRule(`{"fixed_window":{"limit":5,"calendar":"day","time_zone":"+02:00"}}`): "rules[0].fixed_window.time_zone",
		withRule(`{"fixed_window":{"limit":5,"calendar":"day","window":"1m"}}`):        "rules[0].fixed_window",
		withRule(`{"token_bucket":{"rate":"a"}}`):                                      "rules[0].token_bucket.rate: `a` is not a rate",
		withRule(`{"token_bucket":{"rate":"1/s","initial":2}}`):                        "rules[0].token_bucket.initial",
		withRule(`{"smooth_warmup":{"rate":"1/s","warmup":"1s","cold_factor":1}}`):     "rules[0].smooth_warmup.cold_factor",
		withRule(`{"smooth_warmup":{"rate":"1/s","warmup":"1s","cold_factor":1e+1}}`):  "rules[0].smooth_warmup.cold_factor",
		withRule(`{"sliding_window":{"limit":1,"window":"5us"}}`):                      "rules[0].sliding_window.window",
		withRule(`{"concurrency":{"limit":1,"ttl":"5s","queue":1}}`):                   "rules[0].concurrency.queue",
	} {
		_, err := parseDocument(text)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, expected %s", text, err, path)
		}
	}
}

func TestLeasesAreCheckedAsServersCheckThem(t *testing.T) {
	const wanted = "; expected `auto` or `off`"
	bucket := `{"name":"burst","token_bucket":{"rate":"1/s"}}`
	slots := `{"name":"slots","concurrency":{"limit":5,"ttl":"1m"}}`
	for text, problem := range map[string]string{
		`{"name":"a","rules":[` + bucket + `],"leases":"on"}`:                                                 "leases: expected `auto`, `off` or `{ max_share: 10%, term: 1s }`",
		`{"name":"a","rules":[` + bucket + `],"leases":{"max_share":"51%"}}`:                                  "leases.max_share: `51%` is not a whole percentage from 1% to 50%, such as `10%`",
		`{"name":"a","rules":[` + bucket + `],"leases":{"max_share":10}}`:                                     "leases.max_share: expected a share from 1% to 50%, such as `10%`",
		`{"name":"a","rules":[` + bucket + `],"leases":{"term":"99ms"}}`:                                      "leases.term: `99ms` is out of range, expected a duration from 100ms to 2s, such as `1s`",
		`{"name":"a","rules":[` + bucket + `,` + slots + `],"leases":{}}`:                                     "leases: rule `slots` is a `concurrency`, whose permits cannot be leased" + wanted,
		`{"name":"a","rules":[` + bucket + `],"leases":{},"overrides":[{"key":"k","rules":[` + slots + `]}]}`: "leases: in overrides[0], rule `slots` is a `concurrency`, whose permits cannot be leased" + wanted,
		`{"name":"a","rules":[` + bucket + `],"leases":{},"overflow":{"queue":{"max_wait":"1s"}}}`:            "leases: `overflow: queue` books permits in advance" + wanted,
		`{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"9s"}}],"leases":{}}`:                        "leases: rule `sliding_log` is a `sliding_log`, whose window of less than 10 s is too short to lease" + wanted,
		`{"name":"a","rules":[{"fixed_window":{"limit":1,"window":"999ms"}}],"leases":{}}`:                    "leases: rule `fixed_window` is a `fixed_window`, whose window of less than 1 s is too short to lease" + wanted,
		`{"name":"a","rules":[{"leaky_bucket":{"rate":"1/s"}}],"leases":{}}`:                                  "leases: rule `leaky_bucket` is a `leaky_bucket`, whose `delay` is not `none`" + wanted,
		`{"name":"a","rules":[{"smooth_bursty":{"rate":"1/s"}}],"leases":{}}`:                                 "leases: rule `smooth_bursty` is a `smooth_bursty`, which books permits in advance" + wanted,
	} {
		_, err := parseDocument(text)
		if err == nil || !strings.HasSuffix(err.Error(), "rules: "+problem) {
			t.Errorf("%s: %v, expected %s", text, err, problem)
		}
	}
	for _, text := range []string{
		`{"name":"a","rules":[` + slots + `],"leases":"auto"}`,
		`{"name":"a","rules":[` + slots + `],"leases":"off"}`,
		`{"name":"a","rules":[` + bucket + `],"leases":{"max_share":"1%","term":"100ms"}}`,
		`{"name":"a","rules":[{"fixed_window":{"limit":1,"calendar":"day"}}],"leases":{"max_share":"50%","term":"2s"}}`,
	} {
		if _, err := parseDocument(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCostlyRulesCanBeReadAndAreNotDecided(t *testing.T) {
	for rule, costly := range map[string]bool{
		`{"sliding_log":{"limit":2500,"window":"5s"}}`: false, `{"sliding_log":{"limit":2501,"window":"5s"}}`: true,
		`{"concurrency":{"limit":1000,"ttl":"5s"}}`: false, `{"concurrency":{"limit":1001,"ttl":"5s"}}`: true,
	} {
		cheap := `{"fixed_window":{"limit":5,"window":"1m"}}`
		for _, text := range []string{withRule(rule), `{"name":"a","rules":[` + cheap + `],"overrides":[{"key":"k","rules":[` + rule + `]}]}`} {
			if _, err := parseDocument(text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			_, err := readPolicy("a", `{"version":1,"state":"active","app":"","document":`+text+`}`, nil, 1)
			if errors.Is(err, errCostly) != costly {
				t.Errorf("%s: %v", text, err)
			}
			if _, err := InMemory(Document(text)); errors.Is(err, ErrRules) != costly {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	if _, err := inMemory(t, newManual()).Limit("a", SlidingLog(2501, time.Second)); !errors.Is(err, ErrRules) {
		t.Error(err)
	}
}

func TestRatesAndDurations(t *testing.T) {
	for text, want := range map[string][2]int64{
		"100/s": {100, 1_000_000}, "5/200ms": {5, 200_000}, "10/min": {10, 60_000_000}, "10/1m": {10, 60_000_000},
		"64KiB/s": {65_536, 1_000_000}, "4GiB/us": {1 << 32, 1},
		"100": {}, "100/": {}, "/s": {}, "1/s/s": {}, "0/s": {}, "5/0s": {}, "1.5/s": {}, "010/s": {}, "1e3/s": {},
		"100 /s": {}, "100/S": {}, "64kib/s": {}, "1/367d": {}, "4294967297/s": {}, "5GiB/s": {}, "1/01s": {},
		"99999999999999999999/s": {}, "1/99999999999999999999s": {}, "1/": {}, "": {},
	} {
		permits, period, ok := parseRate(text)
		if ok != (want[0] > 0) || ok && [2]int64{permits, period} != want {
			t.Errorf("%s: %d each %d us, %v", text, permits, period, ok)
		}
	}
	for _, text := range []string{"0s", "60", "1.5s", "5 s", "5S", "1week", "367d", "s", "01s", "-1s", ""} {
		if us, ok := parseDuration(text); ok {
			t.Errorf("%s is read as %d us, but it is not a duration", text, us)
		}
	}
}

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		unit       int
		zone, at   string
		from, till string
	}{
		{unitDay, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{unitDay, "America/Havana", "2023-11-05T12:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z"},
		{unitDay, "Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{unitDay, "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{unitDay, "america/ST_johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{unitWeek, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{unitMonth, "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{unitYear, "UTC", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"},
		{unitYear, "Europe/Berlin", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1970-12-31T23:00:00Z"},
	} {
		zone, err := loadZone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		micro := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMicro()
		}
		got, want := windowAround(c.unit, zone, micro(c.at)), window{micro(c.from), micro(c.till)}
		if got != want {
			t.Errorf("%s at %s: %v to %v, expected %s to %s", c.zone, c.at, time.UnixMicro(got.from).UTC(),
				time.UnixMicro(got.till).UTC(), c.from, c.till)
		}
	}
}

func FuzzDocument(f *testing.F) {
	for _, rule := range []string{`{"token_bucket":{"rate":"1/s","initial":2}}`, `{"leaky_bucket":{"rate":"5/s","burst":11,"delay":3}}`,
		`{"fixed_window":{"limit":10,"calendar":"day","time_zone":"Europe/Berlin"}}`, `{"concurrency":{"limit":4,"ttl":"20s"}}`} {
		f.Add(withRule(rule))
	}
	f.Add(`{"name":"a","key":["user"],"rules":[{"sliding_log":{"limit":9,"window":"8s"}}],"overflow":{"queue":{"max_wait":"1s"}},"on_store_failure":"deny"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseDocument(text); err == nil {
			if _, err := policyOf(d, 1); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

func FuzzReply(f *testing.F) {
	one := "\x01\x00" + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 3) + "\x00\x00\x00\x00" // of 27 bytes
	several := one + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 2)
	for _, seed := range []string{"\x00", "\x02", "\x03abc", "\x04rules", one, several} {
		f.Add(seed, 1, 0)
	}
	f.Add(several+"\x01\x00\x00\x00\x02\x00\x00\x00", 1, 2)
	var p problems
	set := compileRules("rules", []Rule{PerSecond(1).Named("a"), PerHour(9).Named("b")}, "", carryUsage, &p)
	f.Fuzz(func(t *testing.T, text string, v, debts int) {
		got, err := decodeReply(text, set, verb(min(max(v, 1), 9)), min(max(debts, 0), 8))
		if err == nil && got.kind <= replyAllowed {
			for i, used := range (answer{verdict: got.verdict, set: set, left: got.left}).inUse(set) {
				if i < len(set.rules) && (used < 0 || used > set.rules[i].limit()) {
					t.Errorf("%q: %d are in use of rule %d", text, used, i)
				}
			}
		}
		_, _, _ = parseCallerHead([]byte(text))
		_, _ = parseRules([]byte(text))
	})
}

func FuzzRate(f *testing.F) {
	for _, text := range []string{"100/s", "64KiB/200ms", "4294967296/366d", "31622400s", "1/0s", "00/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if permits, us, ok := parseRate(text); ok && (permits < 1 || permits > permitsMax || us < 1 || us > periodMaxUS) {
			t.Errorf("%q is read as %d in %d us", text, permits, us)
		}
		if us, ok := parseDuration(text); ok && (us < 1 || us > periodMaxUS) {
			t.Errorf("%q is read as %d us", text, us)
		}
		_ = parseQuotas(text)
	})
}
