package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// readOf reads a record that is right.
func readOf(t testing.TB, name, text string, ownMS int64) *policy.Policy {
	t.Helper()
	p, err := policy.Read(name, text, nil, ownMS)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// wireRules returns the rules of a policy of records.json.
func wireRules(t *testing.T, name string) *wire.CompiledRules {
	t.Helper()
	for _, e := range testkit.LoadWire[testkit.Record](t, "records.json", 1) {
		if e.Name == name {
			return readOf(t, name, e.Record, wire.InstantOf(time.UnixMicro(e.SinceUS))).Rules
		}
	}
	t.Fatalf("no policy `%s`", name)
	return nil
}

func TestRequestsAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Policy, Verb, Clock, ID string
		AtUS                    int64 `json:"at_us"`
		Cost                    int64
		MaxWait                 *int64 `json:"max_wait_us"`
		Windows                 [][]int64
		Before                  json.RawMessage
		RequestHex              string `json:"request_hex"`
	}](t, "requests.json", 154) {
		step := testkit.VectorStep{AtUS: e.AtUS, Op: e.Verb, MaxWait: e.MaxWait, ID: e.ID, Windows: e.Windows}
		if e.Cost > 0 {
			step.Cost = &e.Cost
		}
		plan, r, before := wireRules(t, e.Policy), step.Request(), wire.StateWriter{}
		if string(e.Before) == `"lost"` {
			before.Lost = true
		} else if e.Before[0] == '{' {
			var writer struct {
				BlobHex string `json:"blob_hex"`
			}
			_ = json.Unmarshal(e.Before, &writer)
			before.Blob = testkit.Unhex(t, writer.BlobHex)
		}
		if own := plan.Windows(e.AtUS); fmt.Sprint(own) != fmt.Sprint(r.Windows) {
			t.Errorf("%s: windows %v, expected %v", e.Policy, own, r.Windows)
		}
		by := map[string]wire.Clock{"server": wire.ClockServer, "given": wire.ClockGiven, "client": wire.ClockClient}[e.Clock]
		if got := hex.EncodeToString(wire.EncodeRequest(by, r, before)); got != e.RequestHex {
			t.Errorf("%+v: %s", e, got)
		}
	}
}

// inUseOf returns what a reply says to be in use of each rule.
func inUseOf(set *kernel.RuleSet, got wire.Reply) map[string]int64 {
	out := map[string]int64{}
	used := Answer{Verdict: got.Verdict, Set: set, decided: got.Decided, left: got.Left}.inUse(set)
	for i, rule := range set.Rules {
		out[rule.Name] = used[i]
	}
	return out
}

func TestRepliesAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Policy, Verb string
		ReplyHex     string `json:"reply_hex"`
		Means        json.RawMessage
	}](t, "replies.json", 94) {
		set := wireRules(t, e.Policy).Set
		got, err := wire.DecodeReply(string(testkit.Unhex(t, e.ReplyHex)), set, testkit.Verbs[e.Verb], 0)
		means := ""
		switch {
		case err != nil:
			means = `"foreign"`
		case got.Kind == wire.ReplyUnsupported:
			means = `"unsupported"`
		case got.Kind == wire.ReplyUnknown:
			means = fmt.Sprintf(`{"unknown":"%x"}`, got.Head)
		case got.Kind == wire.ReplyMalformed:
			means = fmt.Sprintf(`{"malformed":%q}`, got.Part)
		default:
			v, retry := got.Verdict, &got.Verdict.Retry
			if v.Retry == kernel.Never {
				retry = nil
			}
			rule := set.Rules[v.Rule]
			means = testkit.Decision{Allowed: v.Allowed, Granted: v.Granted, Wait: v.Wait, Limit: rule.Limit(), Remaining: v.Remaining,
				Retry: retry, ResetAfter: v.ResetAfter, Rule: rule.Name, InUse: inUseOf(set, got)}.String()
		}
		var want bytes.Buffer
		_ = json.Compact(&want, e.Means)
		var decision testkit.Decision
		if json.Unmarshal(e.Means, &decision) == nil && decision.Rule != "" {
			want.Reset()
			want.WriteString(decision.String())
		}
		if means != want.String() {
			t.Errorf("%s of %s: %s means %s, expected %s", e.Verb, e.Policy, e.ReplyHex, means, want.String())
		}
	}
}

// decisionOf returns an answer under compiled rules, as the files of spec/wire have it.
func decisionOf(p *wire.CompiledRules, a Answer) testkit.Decision {
	d := testkit.Decision{Allowed: a.Allowed, Granted: a.Granted, Wait: a.Wait, Limit: a.Set.Rules[a.Rule].Limit(),
		Remaining: a.Remaining, ResetAfter: a.ResetAfter, Rule: p.OwnRuleName(a.Set, a.Rule)}
	if a.Retry != kernel.Never {
		d.Retry = &a.Retry
	}
	return d
}

func TestVersionsInTurnAreThoseOfTheWire(t *testing.T) {
	for place, e := range testkit.LoadWire[struct {
		Records  []string
		StateHex *string `json:"state_hex"`
		Steps    []struct {
			testkit.VectorStep
			By        int             `json:"by"`
			Expect    json.RawMessage `json:"expect"`
			StoredHex *string         `json:"stored_hex"`
		}
	}](t, "versions.json", 30) {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			client, ctx, key := testkit.Dial(t, testkit.RedisAddr(t)), context.Background(), wire.StateKey("p", "k")
			var stores []*Redis
			var plans []*wire.CompiledRules
			for _, record := range e.Records {
				plans = append(plans, readOf(t, "p", record, 0).RulesFor("k", 0))
				stores = append(stores, NewRedis(wire.Conn{Client: client}, 5*time.Second, time.Now, func() wire.Clock { return wire.ClockGiven }))
			}
			if e.StateHex != nil {
				if err := client.Set(ctx, key, testkit.Unhex(t, *e.StateHex), 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for number, step := range e.Steps {
				plan, r := plans[step.By], step.Request()
				r.Windows = plan.Windows(r.Now)
				a, f := stores[step.By].Decide(ctx, Request{Rules: plan, Key: key, Request: r})
				got := ""
				switch {
				case f != nil && f.Class == wire.ClassThisKey:
					got = `"this_key"`
				case f != nil:
					t.Fatalf("step %d: %v", number, f)
				default:
					got = decisionOf(plan, a).String()
				}
				want := string(step.Expect)
				var decision testkit.Decision
				if json.Unmarshal(step.Expect, &decision) == nil {
					want = decision.String()
				}
				if got != want {
					t.Fatalf("step %d: %s, expected %s", number, got, want)
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
