package sluicegate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

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
			if _, err := policy.Read("window", text, nil, 1); errors.Is(err, kernel.ErrCostly) != c.costly || errors.As(err, new(kernel.LaterError)) {
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

// subscriber is a program in memory to which records are published, and its log.
type subscriber struct {
	*policy.Catalog
	gate     *Gate
	revision int64
}

func newSubscriber() *subscriber {
	held := policy.NewCatalog(nil, time.Now)
	e := engine.New(engine.Config{Policies: held, App: "shop", Clock: newManual()})
	return &subscriber{Catalog: held, gate: &Gate{decider: local{e}}}
}

// publish has a look find one policy `a`, and gives the limit by which it decides, or the error.
func (s *subscriber) publish(t *testing.T, record string) (int64, error) {
	t.Helper()
	s.revision++
	s.Take(map[string]string{"#format": "1", "#revision": fmt.Sprint(s.revision), "a": record}, false)
	d, err := s.gate.Policy("a").Peek(context.Background(), "k", 1)
	return d.Limit, err
}

// version returns the version of a policy that is held.
func (s *subscriber) version(name string) int64 {
	p, _ := s.Get(name)
	return p.Version
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
		if name, reason := s.Unreadable(); name != "a" || !strings.Contains(reason, "later version") {
			t.Errorf("%s is reported: %s", name, reason)
		}
		if _, err := s.gate.Policy("b").Peek(context.Background(), "k", 1); !errors.Is(err, ErrUnknownPolicy) {
			t.Error(err)
		}
	}
}

func TestADamagedRecordLeavesWhatIsHeld(t *testing.T) {
	huge := recordWith(t, "window", map[string]any{"version": 2, "more": strings.Repeat("x", policy.RecordMax)})
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
			if limit, err := s.publish(t, damaged); err != nil || limit != 5 || s.version("a") != 1 {
				t.Errorf("what was held does not decide: %d, %v", limit, err)
			}
			if name, _ := s.Unreadable(); name != "a" {
				t.Errorf("%s is reported", name)
			}
			if limit, err := s.publish(t, recordOf(t, 3, PerHour(7))); err != nil || limit != 7 {
				t.Errorf("the next one is not followed: %d, %v", limit, err)
			}
			if name, reason := s.Unreadable(); name != "" {
				t.Errorf("%s is reported still: %s", name, reason)
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
