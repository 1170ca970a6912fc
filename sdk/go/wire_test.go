package sluicegate

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// loadWire reads the entries of a file of spec/wire, of which there are so many or more.
func loadWire[T any](t *testing.T, file string, most int) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(specDir, "wire", file))
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

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	out, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestKeysAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
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
			got, want = stateKey(e.Policy, string(unhex(t, *e.KeyHex))), e.StateKey
		case e.Generation != "":
			got, want = rulesKey(e.Policy, unhex(t, e.Generation)), e.RulesKey
		default:
			got, want = hex.EncodeToString(permitID.bytes(permitOf(e.PermitID))), e.PermitHex
		}
		if got != want || want == "" {
			t.Errorf("%+v: %s", e, got)
		}
	}
}

// wirePlan gives the rules of a policy of records.json.
func wirePlan(t *testing.T, name string) *plan {
	t.Helper()
	for _, e := range loadWire[wireRecord](t, "records.json", 1) {
		if e.Name == name {
			return readOf(t, name, e.Record, instantOf(time.UnixMicro(e.SinceUS))).plan
		}
	}
	t.Fatalf("no policy `%s`", name)
	return nil
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

// rule gives the same as a limit made in code has it.
func (d documentRule) rule(t *testing.T) Rule {
	t.Helper()
	of := vectorRule{}
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
	return of.rule(t)
}

func TestLimitsAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
		Document struct {
			Carry string
			Rules []documentRule
		}
		BlobHex string `json:"blob_hex"`
		HeadHex string `json:"head_hex"`
	}](t, "limits.json", 222) {
		var rules []Rule
		for _, rule := range e.Document.Rules {
			rules = append(rules, rule.rule(t))
		}
		set := ruleSetOf(t, rules...)
		set.carry = carries[e.Document.Carry]
		p := ofCaller("p", set)
		if hex.EncodeToString(p.blob) != e.BlobHex || hex.EncodeToString(p.head) != e.HeadHex {
			t.Errorf("%s: %x", e.Document.Rules, p.blob)
		}
		_, blob, err := parseCallerHead(append(unhex(t, e.HeadHex), 0, 1, 2, 255))
		if err != nil || hex.EncodeToString(blob) != e.BlobHex {
			t.Errorf("%s: read back as %x, %v", e.Document.Rules, blob, err)
		}
	}
}

func TestRequestsAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
		Policy, Verb, Clock, ID string
		AtUS                    int64 `json:"at_us"`
		Cost                    int64
		MaxWait                 *int64 `json:"max_wait_us"`
		Windows                 [][]int64
		Before                  json.RawMessage
		RequestHex              string `json:"request_hex"`
	}](t, "requests.json", 154) {
		step := vectorStep{AtUS: e.AtUS, Op: e.Verb, MaxWait: e.MaxWait, ID: e.ID, Windows: e.Windows}
		if e.Cost > 0 {
			step.Cost = &e.Cost
		}
		plan, r, before := wirePlan(t, e.Policy), step.request(), foreign{}
		if string(e.Before) == `"lost"` {
			before.lost = true
		} else if e.Before[0] == '{' {
			var said struct {
				BlobHex string `json:"blob_hex"`
			}
			_ = json.Unmarshal(e.Before, &said)
			before.blob = unhex(t, said.BlobHex)
		}
		if own := plan.windows(e.AtUS); fmt.Sprint(own) != fmt.Sprint(r.windows) {
			t.Errorf("%s: windows %v, expected %v", e.Policy, own, r.windows)
		}
		by := map[string]clock{"server": clockServer, "given": clockGiven, "client": clockClient}[e.Clock]
		if got := hex.EncodeToString(encodeRequest(by, r, before)); got != e.RequestHex {
			t.Errorf("%+v: %s", e, got)
		}
	}
}

// wireDecision is a decision as the files of spec/wire have it.
type wireDecision struct {
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

// MarshalJSON gives an error alone.
func (d wireDecision) MarshalJSON() ([]byte, error) {
	if d.Error != "" {
		return json.Marshal(map[string]string{"error": d.Error})
	}
	type fields wireDecision
	return json.Marshal(fields(d))
}

func (d wireDecision) String() string {
	text, _ := json.Marshal(d)
	return string(text)
}

// inUseOf gives what a reply says to be in use of each of several rules.
func inUseOf(set *ruleSet, got reply) map[string]int64 {
	if len(set.rules) == 1 {
		return nil
	}
	out := map[string]int64{}
	said := answer{verdict: got.verdict, set: set, left: got.left}.inUse(set)
	for i, rule := range set.rules {
		out[rule.name] = said[i]
	}
	return out
}

func TestRepliesAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
		Policy, Verb string
		ReplyHex     string `json:"reply_hex"`
		Means        json.RawMessage
	}](t, "replies.json", 94) {
		set := wirePlan(t, e.Policy).set
		got, err := decodeReply(string(unhex(t, e.ReplyHex)), set, verbs[e.Verb], 0)
		said := ""
		switch {
		case err != nil:
			said = `"foreign"`
		case got.kind == replyUnsupported:
			said = `"unsupported"`
		case got.kind == replyUnknown:
			said = fmt.Sprintf(`{"unknown":"%x"}`, got.head)
		case got.kind == replyMalformed:
			said = fmt.Sprintf(`{"malformed":%q}`, got.part)
		default:
			v, retry := got.verdict, &got.verdict.retry
			if v.retry == never {
				retry = nil
			}
			rule := set.rules[v.rule]
			said = wireDecision{Allowed: v.allowed, Granted: v.granted, Wait: v.wait, Limit: rule.limit(), Remaining: v.remaining,
				Retry: retry, ResetAfter: v.resetAfter, Rule: rule.name, InUse: inUseOf(set, got)}.String()
		}
		var want bytes.Buffer
		_ = json.Compact(&want, e.Means)
		var decision wireDecision
		if json.Unmarshal(e.Means, &decision) == nil && decision.Rule != "" {
			want.Reset()
			want.WriteString(decision.String())
		}
		if said != want.String() {
			t.Errorf("%s of %s: %s means %s, expected %s", e.Verb, e.Policy, e.ReplyHex, said, want.String())
		}
	}
}

func TestCalendarsAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
		Unit, Zone string
		Now        int64 `json:"now_us"`
		Start      int64 `json:"start_us"`
		End        int64 `json:"end_us"`
	}](t, "calendars.json", 440) {
		zone, err := loadZone(e.Zone)
		if err != nil {
			t.Errorf("%s: %v", e.Zone, err)
			continue
		}
		for unit, name := range unitNames {
			if name != e.Unit {
				continue
			}
			if got := windowAround(Unit(unit), zone, e.Now); got != (window{e.Start, e.End}) {
				t.Errorf("%+v: %v", e, got)
			}
		}
	}
}

func TestHeadersAreThoseOfTheWire(t *testing.T) {
	for _, e := range loadWire[struct {
		Record   string
		Decision wireDecision
		Policy   *string `json:"ratelimit-policy"`
		Limit    *string `json:"ratelimit"`
		Retry    *string `json:"retry-after"`
		Problem  any
	}](t, "headers.json", 28) {
		p := readOf(t, "a", e.Record, 1)
		v := verdict{allowed: e.Decision.Allowed, granted: e.Decision.Granted, wait: e.Decision.Wait, retry: never,
			remaining: e.Decision.Remaining, resetAfter: e.Decision.ResetAfter}
		if e.Decision.Retry != nil {
			v.retry = *e.Decision.Retry
		}
		d := decisionOf(p, p.plan, verbCheck, answer{verdict: v, set: p.plan.set}, ModeStore)
		headers := d.Headers()
		for name, want := range map[string]*string{"RateLimit-Policy": e.Policy, "RateLimit": e.Limit, "Retry-After": e.Retry} {
			if got, there := headers[name]; there != (want != nil) || there && got != *want {
				t.Errorf("%s of %v: %s: %s", e.Record, e.Decision, name, got)
			}
		}
		var problem any
		if !d.Allowed {
			_, body := d.Problem()
			_ = json.Unmarshal(body, &problem)
		}
		if fmt.Sprint(problem) != fmt.Sprint(e.Problem) {
			t.Errorf("%s of %v: %v, expected %v", e.Record, e.Decision, problem, e.Problem)
		}
	}
}

// line is a connection to Redis that can be away: then a call fails, and is not sent.
type line struct {
	away  atomic.Bool
	asked atomic.Int64
}

var errAway = errors.New("redis is away")

func (*line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			l.asked.Add(1)
		}
		if l.away.Load() {
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (*line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type failureStep struct {
	vectorStep
	Key    string       `json:"key"`
	Redis  string       `json:"redis"`
	Asked  int64        `json:"asked"`
	Expect wireDecision `json:"expect"`
}

// failureLife is a life of two keys under one policy, with and without Redis.
type failureLife struct {
	Nodes  int64           `json:"nodes"`
	Policy json.RawMessage `json:"policy,omitempty"`
	Record string          `json:"record"`
	Steps  []failureStep   `json:"steps"`
}

// TestLivesWithoutRedisAreThoseOfTheWire plays lives that a server decides alike, and those of windows, of which a program
// counts more than a server: SLUICEGATE_WRITE=1 writes the answers to these anew.
func TestLivesWithoutRedisAreThoseOfTheWire(t *testing.T) {
	alike := 0
	for place, life := range loadWire[failureLife](t, "failure.json", 39) {
		if countsMore(readOf(t, "p", life.Record, 0).plan.set) {
			continue // in windows.json
		}
		alike++
		t.Run(fmt.Sprint(place), func(t *testing.T) { life.play(t, false) })
	}
	if alike != 24 {
		t.Errorf("%d lives are those of a server", alike)
	}
	windows, write := loadWire[failureLife](t, "windows.json", 15), os.Getenv("SLUICEGATE_WRITE") == "1"
	for place := range windows {
		t.Run(fmt.Sprint("windows/", place), func(t *testing.T) { windows[place].play(t, write) })
	}
	if write {
		lines := make([]string, len(windows))
		for i, life := range windows {
			text, _ := json.Marshal(life)
			lines[i] = "    " + string(text)
		}
		about := "Lives as in failure.json, of windows, by a program: see the page of failures, A window."
		text := fmt.Sprintf("{\n  \"about\": %q,\n  \"entries\": [\n%s\n  ]\n}\n", about, strings.Join(lines, ",\n"))
		if err := os.WriteFile(filepath.Join(specDir, "wire/windows.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// countsMore says whether a program counts more than a server under the first of these rules, or answers otherwise.
func countsMore(set *ruleSet) bool {
	for i, r := range set.rules {
		if window, ok := r.primitive.(*slidingWindow); ok && (i == 0 || !window.fixed) {
			return true
		}
	}
	return false
}

// play has a gate decide the steps of a life, and compares the answers, or puts them into the life.
func (e *failureLife) play(t *testing.T, write bool) {
	addr, ctx := redisAddr(t), context.Background()
	publishRecords(t, addr, 1, map[string]string{"p": e.Record})
	client, line := dial(t, addr), &line{}
	if err := client.HSet(ctx, policiesKey, "#clock", "client").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ScriptLoad(ctx, script).Err(); err != nil {
		t.Fatal(err)
	}
	client.AddHook(line)
	clock := &manual{now: time.UnixMicro(e.Steps[0].AtUS)}
	gate, err := Direct(client, App("shop"), WithClock(clock), Nodes(e.Nodes), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	// Between steps room is made; debts are paid with requests only.
	engine := gate.decider.(engineDecider).e
	engine.stop()
	engine.done.Wait()
	swept := int64(0)
	for number := range e.Steps {
		step := &e.Steps[number]
		clock.set(step.AtUS)
		if step.AtUS-swept >= sweepEvery.Microseconds() {
			engine.share.sweep(step.AtUS)
			swept = step.AtUS
		}
		line.away.Store(step.Redis == "away")
		line.asked.Store(0)
		got, asked := wireAnswer(step.ask(ctx, gate.Policy("p"))), line.asked.Load()
		if write {
			step.Expect, step.Asked = got, asked
		} else if got.String() != step.Expect.String() || asked != step.Asked {
			text, _ := json.Marshal(step)
			t.Fatalf("step %d: %s: %v, asked %d", number, text, got, asked)
		}
	}
}

func (c *manual) set(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = time.UnixMicro(us)
}

// ask asks for what a step says.
func (s failureStep) ask(ctx context.Context, l *Limiter) (Decision, error) {
	r := s.request()
	return l.ask(ctx, r.verb, s.Key, r.cost, r.maxWait, s.ID)
}

// wireAnswer says a decision as the files of spec/wire do.
func wireAnswer(d Decision, err error) wireDecision {
	if err != nil {
		var said *Error
		errors.As(err, &said)
		return wireDecision{Error: said.Name}
	}
	out := wireDecision{Allowed: d.Allowed, Granted: d.Granted, Wait: d.Wait.Microseconds(), Limit: d.Limit,
		Remaining: d.Remaining, ResetAfter: d.ResetAfter.Microseconds(), Rule: d.Rule, Mode: string(d.Mode),
		Way: map[OverflowKind]string{OverflowShadow: "shadowed", OverflowDegrade: "degraded", OverflowDivert: "diverted"}[d.Overflow.Kind]}
	out.Allowed = d.Allowed && d.Overflow.Kind != OverflowShadow
	if retry := d.RetryAfter.Microseconds(); out.Allowed || d.CanRetry {
		out.Retry = &retry
	}
	return out
}

func TestVersionsInTurnAreThoseOfTheWire(t *testing.T) {
	for place, e := range loadWire[struct {
		Records  []string
		StateHex *string `json:"state_hex"`
		Steps    []struct {
			vectorStep
			By        int             `json:"by"`
			Expect    json.RawMessage `json:"expect"`
			StoredHex *string         `json:"stored_hex"`
		}
	}](t, "versions.json", 30) {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			client, ctx, key := dial(t, redisAddr(t)), context.Background(), stateKey("p", "k")
			var stores []*redisStore
			var plans []*plan
			for _, record := range e.Records {
				plans = append(plans, readOf(t, "p", record, 0).planFor("k", 0))
				stores = append(stores, newRedisStore(redisConn{client}, 5*time.Second, time.Now, func() clock { return clockGiven }))
			}
			if e.StateHex != nil {
				if err := client.Set(ctx, key, unhex(t, *e.StateHex), 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for number, step := range e.Steps {
				plan, r := plans[step.By], step.request()
				r.windows = plan.windows(r.now)
				a, f := stores[step.By].ask(ctx, question{plan: plan, key: key, request: r})
				said := ""
				switch {
				case f != nil && f.class == classThisKey:
					said = `"this_key"`
				case f != nil:
					t.Fatalf("step %d: %v", number, f)
				default:
					d := decisionOf(&policy{name: "p", plan: plan}, plan, r.verb, a, "")
					said = wireAnswer(d, nil).String()
				}
				want := string(step.Expect)
				var decision wireDecision
				if json.Unmarshal(step.Expect, &decision) == nil {
					want = decision.String()
				}
				if said != want {
					t.Fatalf("step %d: %s, expected %s", number, said, want)
				}
				stored, err := client.Get(ctx, key).Bytes()
				if step.StoredHex == nil {
					if !errors.Is(err, redis.Nil) {
						t.Fatalf("step %d: %x is stored, expected nothing", number, stored)
					}
				} else if hex.EncodeToString(stored) != *step.StoredHex {
					t.Fatalf("step %d: %x is stored, expected %s", number, stored, *step.StoredHex)
				}
			}
		})
	}
}
