package sluicegate

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

func TestErrorsHaveTheNamesOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile(testkit.SpecDir + "/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Name string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, e := range []*Error{
		ErrUnknownPolicy, ErrNothingPublished, ErrPolicyNotAvailable, ErrAppMissing, ErrAppName, ErrKeyEmpty, ErrKeyLength, ErrIDLength,
		ErrCostRange, ErrMaxWaitRange, ErrNodesRange, ErrDeadlineRange, ErrUnsupportedVerb, ErrNotInDirectMode,
		ErrKeyText, ErrNotOnThisWire, ErrInterrupted, ErrNotCharged, ErrPerhapsCharged, ErrUnreadablePolicy, ErrRules, ErrServer,
	} {
		own[e.Name] = true
	}
	for _, e := range listed {
		if !own[e.Name] {
			t.Errorf("%s is missing", e.Name)
		}
		delete(own, e.Name)
	}
	for name := range own {
		t.Errorf("%s is not in the specification", name)
	}
}

// TestEveryErrorIsOneOfTheVariables calls everything that may fail, and compares by errors.Is: each error is its own variable, and
// no other. Every variable of errors.go has a row.
func TestEveryErrorIsOneOfTheVariables(t *testing.T) {
	ctx := context.Background()
	expired, cancel := context.WithCancel(ctx)
	cancel()
	compiled := Compiled(compiledPolicies(t))
	memory, other := newGate(t, newManual(), compiled), newGate(t, newManual(), compiled, App("other"))
	limited := refusedDecision(t)
	web, fast := falseServer(t, 200, goodAnswer), remoteOf(t, "resp://"+falseRESP(t, "-ERR later\r\n"))
	const unavailable = "127.0.0.1:1" // a port that no server of this test is given
	gone := direct(t, unavailable, Deadline(time.Second))
	mail, err := gone.Limit("mail", PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	problem := func(kind, charged string) *Limiter {
		return falseServer(t, 503, `{"type":"urn:sluicegate:problem:`+kind+`","status":503,"detail":"x","charged":"`+charged+`"}`).Policy("a")
	}
	reply := func(text string) *Limiter { return remoteOf(t, "resp://"+falseRESP(t, text)).Policy("a") }
	wrongVerb := falseServer(t, 400, `{"status":400,"detail":"op: no"}`).Policy("a")
	unreadable := newSubscriber()
	_, _ = unreadable.publish(t, "{")
	long, window := strings.Repeat("k", keyMax+1), memory.Policy("window")
	allow := func(l *Limiter, key string, n int64) error { _, err := l.AllowN(ctx, key, n); return err }
	made := func(_ *Gate, err error) error { return err }
	limit := func(_ *Limiter, err error) error { return err }
	decided := func(_ Decision, err error) error { return err }
	permit := func(_ *Permit, err error) error { return err }
	settled := func(_ Settlement, err error) error { return err }
	explained := func(_ Explanation, err error) error { return err }
	batch := func(_ Batch, err error) error { return err }
	client := dial(t, unavailable)

	rows := map[string]struct {
		of     error
		errors []error
	}{
		"ErrUnknownPolicy": {ErrUnknownPolicy, []error{allow(memory.Policy("none"), "k", 1), allow(problem("unknown-policy", "no"), "k", 1),
			allow(reply("*8\r\n"+strings.Repeat(":0\r\n", 6)+"$-1\r\n$-1\r\n"), "k", 1)}},
		"ErrNothingPublished":   {ErrNothingPublished, []error{allow(direct(t, redisAddr(t)).Policy("a"), "k", 1)}},
		"ErrPolicyNotAvailable": {ErrPolicyNotAvailable, []error{allow(other.Policy("partner"), "k", 1)}},
		"ErrAppMissing":         {ErrAppMissing, []error{allow(memory.Policy("partner"), "k", 1), allow(problem("not-configured", "no"), "k", 1)}},
		"ErrAppName":            {ErrAppName, []error{made(Direct(client, App("A"))), made(InMemory(App("A"))), made(Remote("http://gate", App("A"))), made(Remote("resp://gate:1", App("A")))}},
		"ErrKeyEmpty":           {ErrKeyEmpty, []error{allow(window, "", 1), allow(mail, "", 1), allow(web.Policy("a"), "", 1), allow(fast.Policy("a"), "", 1)}},
		"ErrKeyLength":          {ErrKeyLength, []error{allow(window, long, 1), allow(window.Shared(), "k", 1), allow(web.Policy("a").Shared(), "k", 1), decided(window.Refund(ctx, long, 1)), explained(web.Policy("a").Explain(ctx, long, 1))}},
		"ErrKeyText":            {ErrKeyText, []error{allow(web.Policy("a"), "\xff", 1), permit(web.Policy("a").AcquireN(ctx, "k", "\xff", 1)), batch(web.AllowAll(ctx, Check{web.Policy("a"), "\xff", 1}))}},
		"ErrIDLength":           {ErrIDLength, []error{permit(window.AcquireN(ctx, "k", "", 1)), decided(window.Release(ctx, "k", long)), decided(window.Renew(ctx, "k", "")), settled(web.Policy("a").Settle(ctx, "k", "", 1, 1))}},
		"ErrCostRange": {ErrCostRange, []error{allow(window, "k", 0), decided(window.AllowAtMost(ctx, "k", CostMax+1)), decided(window.Peek(ctx, "k", -1)),
			settled(web.Policy("a").Settle(ctx, "k", "id", 0, 1)), settled(web.Policy("a").Settle(ctx, "k", "id", 1, -1)), explained(web.Policy("a").Explain(ctx, "k", 0)), window.WaitN(ctx, "k", 0)}},
		"ErrMaxWaitRange":    {ErrMaxWaitRange, []error{decided(window.Reserve(ctx, "k", 1, -1)), decided(falseServer(t, 400, `{"status":400,"detail":"max_wait: no"}`).Policy("a").Reserve(ctx, "k", 1, 0))}},
		"ErrNodesRange":      {ErrNodesRange, []error{made(Direct(client, Nodes(0)))}},
		"ErrDeadlineRange":   {ErrDeadlineRange, []error{made(Direct(client, Deadline(0))), made(Remote("http://gate", Deadline(time.Minute))), made(Remote("resp://gate:1", Deadline(0)))}},
		"ErrUnsupportedVerb": {ErrUnsupportedVerb, []error{permit(window.Acquire(ctx, "k")), allow(wrongVerb, "k", 1), allow(reply("-ERR op: no\r\n"), "k", 1)}},
		"ErrNotInDirectMode": {ErrNotInDirectMode, []error{settled(window.Settle(ctx, "k", "id", 1, 1)), explained(mail.Explain(ctx, "k", 1)), batch(memory.AllowAll(ctx, Check{window, "k", 1}))}},
		"ErrNotOnThisWire": {ErrNotOnThisWire, []error{decided(fast.Policy("a").AllowAtMost(ctx, "k", 1)), settled(fast.Policy("a").Settle(ctx, "k", "id", 1, 1)),
			explained(fast.Policy("a").Explain(ctx, "k", 1)), batch(fast.AllowAll(ctx, Check{fast.Policy("a"), "k", 1}))}},
		"ErrNotCharged": {ErrNotCharged, []error{decided(mail.Refund(ctx, "k", 1)), decided(mail.Reset(ctx, "k")), allow(gone.Policy("a"), "k", 1),
			allow(remoteOf(t, "http://"+unavailable).Policy("a"), "k", 1), allow(remoteOf(t, "resp://"+unavailable).Policy("a"), "k", 1),
			decided(window.Allow(expired, "k")), allow(problem("no-store", "no"), "k", 1), allow(reply("-NOTCHARGED store: x\r\n"), "k", 1)}},
		"ErrPerhapsCharged":   {ErrPerhapsCharged, []error{allow(problem("no-store", "unknown"), "k", 1), allow(reply("-MAYBECHARGED store: x\r\n"), "k", 1)}},
		"ErrInterrupted":      {ErrInterrupted, []error{decided(web.Policy("a").Allow(expired, "k"))}},
		"ErrUnreadablePolicy": {ErrUnreadablePolicy, []error{allow(unreadable.gate.Policy("a"), "k", 1)}},
		"ErrRules": {ErrRules, []error{limit(memory.Limit("a", PerSecond(0))), limit(memory.Limit("A", PerSecond(1))), limit(web.Limit("a", PerSecond(1))), limit(fast.Limit("a", PerSecond(1))), limit(memory.Limit("a", Rule{})),
			limit(window.OnStoreFailure(FailAllow)), limit(mail.OnStoreFailure(99)), limit(mail.OnStoreFailure(-1)),
			made(InMemory(Compiled("{"))), made(InMemory(Rules("a"))), batch(web.AllowAll(ctx, Check{window, "k", 1}))}},
		"ErrServer": {ErrServer, []error{allow(falseServer(t, 500, "oops").Policy("a"), "k", 1), allow(falseServer(t, 200, "{}").Policy("a"), "k", 1), allow(fast.Policy("a"), "k", 1),
			allow(reply(":1\r\n"), "k", 1), batch(falseServer(t, 200, "{}").AllowAll(ctx))}},
		"ErrLimited": {ErrLimited, []error{limited.Err(), permit(jobsInUse(t).Acquire(ctx, "k")), window.WaitN(ctx, "k", 101)}},
		"ErrNotHeld": {ErrNotHeld, []error{lapsedPermit(t).Renew(ctx), context.Cause(lapsedPermit(t).Hold(ctx))}},
		"ErrOption":  {ErrOption, []error{made(Direct(client, Token("t"))), made(InMemory(Nodes(1))), made(Remote("http://gate", Nodes(1))), made(Remote("resp://gate:1", HTTPClient(nil)))}},
		"ErrAddress": {ErrAddress, []error{made(Remote("gate:8080")), made(Remote("ftp://gate")), made(Remote("resp://gate")), made(Remote("unix:")), made(Remote("http://%zz")), made(Remote("http://gate:65536"))}},
		"ErrClient":  {ErrClient, []error{made(Direct(redis.NewClient(&redis.Options{Addr: unavailable}))), made(Direct(nil)), made(Direct((*redis.Client)(nil)))}},
	}
	for _, name := range errorVariables(t) {
		if len(rows[name].errors) == 0 {
			t.Errorf("%s has no row", name)
		}
	}
	for name, row := range rows {
		for i, err := range row.errors {
			if !errors.Is(err, row.of) {
				t.Errorf("%s %d: %v", name, i, err)
			}
			for another, of := range rows {
				if another != name && errors.Is(err, of.of) {
					t.Errorf("%s %d is %s as well: %v", name, i, another, err)
				}
			}
		}
	}
}

// errorVariables returns the names of the exported variables of errors.go.
func errorVariables(t *testing.T) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, object := range parsed.Scope.Objects {
		if object.Kind == ast.Var && ast.IsExported(name) {
			names = append(names, name)
		}
	}
	return names
}

// refusedDecision returns a decision that refuses.
func refusedDecision(t *testing.T) Decision {
	t.Helper()
	l, key := refusedGate(t)
	d, err := l.Allow(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// jobsInUse returns a limit of one permit, which is held.
func jobsInUse(t *testing.T) *Limiter {
	t.Helper()
	l, err := newGate(t, newManual()).Limit("jobs", Concurrency(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	return l
}

// lapsedPermit returns a permit that was released.
func lapsedPermit(t *testing.T) *Permit {
	t.Helper()
	l, err := newGate(t, newManual()).Limit("jobs", Concurrency(1, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := l.Acquire(context.Background(), "k")
	if err == nil {
		err = permit.Release(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return permit
}

// redisError is an error of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestErrorsOfRedisHaveTheirClasses(t *testing.T) {
	const wrapped = "ERR Error running script (call to f_0a): @user_script:8: "
	for _, c := range []struct {
		text    string
		class   wire.Class
		charged bool
	}{
		{"WRONGTYPE Operation against a key", wire.ClassThisKey, false}, {"OOM command not allowed", wire.ClassNoAnswer, false},
		{"@user_script: 8: -OOM command not allowed", wire.ClassNoAnswer, false}, {wrapped + "@user_script: 8: -OOM command not allowed", wire.ClassNoAnswer, false},
		{wrapped + "@user_script: 8: -READONLY You can't write", wire.ClassNoAnswer, false}, {"READONLY You can't write", wire.ClassNoAnswer, false},
		{"NOAUTH Authentication required.", wire.ClassNoAnswer, false}, {"NOPERM this user has no permissions", wire.ClassNoAnswer, false},
		{"LOADING Redis is loading", wire.ClassNoAnswer, false}, {"CLUSTERDOWN The cluster is down", wire.ClassNoAnswer, false},
		{wrapped + "WRONGTYPE Operation against a key", wire.ClassNoAnswer, true}, {"ERR something", wire.ClassNoAnswer, true}, {"SOMETHING else", wire.ClassNoAnswer, true},
	} {
		if f := wire.ClassOf(redisError(c.text)); f.Class != c.class || f.Charged != c.charged {
			t.Errorf("%s: class %d, perhaps charged %v", c.text, f.Class, f.Charged)
		}
	}
}
