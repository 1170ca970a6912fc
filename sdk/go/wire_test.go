package sluicegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// recordedPolicy reads a record that is right.
func recordedPolicy(t *testing.T, name, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Read(name, text, nil, 1)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestHeadersAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Record   string
		Decision testkit.Decision
		Policy   *string `json:"ratelimit-policy"`
		Limit    *string `json:"ratelimit"`
		Retry    *string `json:"retry-after"`
		Problem  any
	}](t, "headers.json", 28) {
		p := recordedPolicy(t, "a", e.Record)
		v := kernel.Verdict{Allowed: e.Decision.Allowed, Granted: e.Decision.Granted, Wait: e.Decision.Wait, Retry: kernel.Never,
			Remaining: e.Decision.Remaining, ResetAfter: e.Decision.ResetAfter}
		if e.Decision.Retry != nil {
			v.Retry = *e.Decision.Retry
		}
		d := decisionOf(engine.Outcome{Answer: store.Answer{Verdict: v, Set: p.Rules.Set}, Policy: p, Rules: p.Rules, Verb: kernel.VerbCheck, Mode: engine.ModeStore})
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
	calls atomic.Int64
}

var errAway = errors.New("redis is away")

func (*line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			l.calls.Add(1)
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
	testkit.VectorStep
	Key    string           `json:"key"`
	Redis  string           `json:"redis"`
	Calls  int64            `json:"asked"`
	Expect testkit.Decision `json:"expect"`
}

// failureHistory is a history of two keys under one policy, with and without Redis.
type failureHistory struct {
	Nodes  int64           `json:"nodes"`
	Policy json.RawMessage `json:"policy,omitempty"`
	Record string          `json:"record"`
	Steps  []failureStep   `json:"steps"`
}

// TestHistoriesWithoutRedisAreThoseOfTheWire plays histories that a server decides alike, and those of windows, of which a program
// counts more than a server: SLUICEGATE_WRITE=1 writes the answers to these anew.
func TestHistoriesWithoutRedisAreThoseOfTheWire(t *testing.T) {
	alike := 0
	for place, history := range testkit.LoadWire[failureHistory](t, "failure.json", 39) {
		if countsMore(recordedPolicy(t, "p", history.Record).Rules.Set) {
			continue // in windows.json
		}
		alike++
		t.Run(fmt.Sprint(place), func(t *testing.T) { history.play(t, false) })
	}
	if alike != 24 {
		t.Errorf("%d histories are those of a server", alike)
	}
	windows, write := testkit.LoadWire[failureHistory](t, "windows.json", 15), os.Getenv("SLUICEGATE_WRITE") == "1"
	for place := range windows {
		t.Run(fmt.Sprint("windows/", place), func(t *testing.T) { windows[place].play(t, write) })
	}
	if write {
		lines := make([]string, len(windows))
		for i, history := range windows {
			text, _ := json.Marshal(history)
			lines[i] = "    " + string(text)
		}
		about := "Lives as in failure.json, of windows, by a program: see the page of failures, A window."
		text := fmt.Sprintf("{\n  \"about\": %q,\n  \"entries\": [\n%s\n  ]\n}\n", about, strings.Join(lines, ",\n"))
		if err := os.WriteFile(filepath.Join(testkit.SpecDir, "wire/windows.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// countsMore reports whether a program counts more than a server under the first of these rules, or answers otherwise.
func countsMore(set *kernel.RuleSet) bool {
	for i, r := range set.Rules {
		isWindow := r.Code >= kernel.CodeFixedWindow && r.Code != kernel.CodeConcurrency
		if isWindow && (i == 0 || r.Code != kernel.CodeFixedWindow) {
			return true
		}
	}
	return false
}

// play has a gate decide the steps of a history, and compares the answers, or puts them into the history.
func (e *failureHistory) play(t *testing.T, write bool) {
	addr, ctx := redisAddr(t), context.Background()
	publishRecords(t, addr, 1, map[string]string{"p": e.Record})
	client, line := dial(t, addr), &line{}
	if err := client.HSet(ctx, policy.PoliciesKey, "#clock", "client").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ScriptLoad(ctx, wire.Script).Err(); err != nil {
		t.Fatal(err)
	}
	client.AddHook(line)
	clock := newManual()
	o, err := optionsOf(forDirect, deadlineDefault, []Option{App("shop"), WithClock(clock), Nodes(e.Nodes), Deadline(patient)})
	if err != nil {
		t.Fatal(err)
	}
	// Between steps room is made; debts are paid with requests only.
	made := o.engineOf(client)
	made.Look(ctx)
	gate, swept := o.gate(local{made}), int64(0)
	for number := range e.Steps {
		step := &e.Steps[number]
		clock.Set(step.AtUS)
		if step.AtUS-swept >= engine.SweepEvery.Microseconds() {
			made.Sweep(step.AtUS)
			swept = step.AtUS
		}
		line.away.Store(step.Redis == "away")
		line.calls.Store(0)
		got, calls := wireAnswer(step.send(ctx, gate.Policy("p"))), line.calls.Load()
		if write {
			step.Expect, step.Calls = got, calls
		} else if got.String() != step.Expect.String() || calls != step.Calls {
			text, _ := json.Marshal(step)
			t.Fatalf("step %d: %s: %v, %d calls", number, text, got, calls)
		}
	}
}

// send makes the request of a step.
func (s failureStep) send(ctx context.Context, l *Limiter) (Decision, error) {
	r := s.Request()
	return l.decideObserved(ctx, engine.Request{Verb: r.Verb, Key: s.Key, Cost: r.Cost, MaxWait: r.MaxWait, ID: s.ID})
}

// wireAnswer says a decision as the files of spec/wire do.
func wireAnswer(d Decision, err error) testkit.Decision {
	if err != nil {
		var problem *Error
		errors.As(err, &problem)
		return testkit.Decision{Error: problem.Name}
	}
	out := testkit.Decision{Allowed: d.Allowed, Granted: d.Granted, Wait: d.Wait.Microseconds(), Limit: d.Limit,
		Remaining: d.Remaining, ResetAfter: d.ResetAfter.Microseconds(), Rule: d.Rule, Mode: string(d.Mode),
		Way: map[OverflowKind]string{OverflowShadow: "shadowed", OverflowDegrade: "degraded", OverflowDivert: "diverted"}[d.Overflow.Kind]}
	out.Allowed = d.Allowed && d.Overflow.Kind != OverflowShadow
	if retry := d.RetryAfter.Microseconds(); out.Allowed || d.CanRetry {
		out.Retry = &retry
	}
	return out
}
