package sluicegate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

const serverPolicies = `{"policies":[
 {"name":"window","rules":[{"fixed_window":{"limit":100,"window":"1h"}}]},
 {"name":"month","rules":[{"name":"m","fixed_window":{"limit":100,"calendar":"month","time_zone":"america/New_york"}},{"name":"l","sliding_log":{"limit":50,"window":"1h"}}]},
 {"name":"jobs","rules":[{"concurrency":{"limit":2,"ttl":"1h"}}]},
 {"name":"seen","rules":[{"concurrency":{"limit":1,"ttl":"1h"}}],"overflow":"shadow"},
 {"name":"bucket","rules":[{"token_bucket":{"rate":"1/h","burst":5}}],"overrides":[{"key":"big","rules":[{"token_bucket":{"rate":"1/h","burst":50}}]}]},
 {"name":"degrade","rules":[{"token_bucket":{"rate":"1/h","burst":1}}],"overflow":{"degrade":{"response":{"status":203,"body":"less"}}}},
 {"name":"tag","rules":[{"token_bucket":{"rate":"1/h","burst":1}}],"overflow":{"degrade":{"tag":"small"}}},
 {"name":"divert","rules":[{"token_bucket":{"rate":"1/h","burst":1}}],"overflow":{"divert":{"target":"other"}}},
 {"name":"shadow","rules":[{"token_bucket":{"rate":"1/h","burst":1}}],"overflow":"shadow"},
 {"name":"queue","rules":[{"token_bucket":{"rate":"10/s","burst":1}}],"overflow":{"queue":{"max_wait":"5s"}}},
 {"name":"import","apps":["partner"],"rules":[{"fixed_window":{"limit":100,"window":"1h"}}]}
]}`

// startServer starts a server on a Redis, which publishes its policies there, and returns its address.
func startServer(t *testing.T, redisAddr, policies string, env ...string) string {
	t.Helper()
	return testkit.StartServer(t, redisAddr, policies, env...)
}

func TestAServerAndAProgramShareEveryBudget(t *testing.T) {
	redisAddr, ctx := redisAddr(t), context.Background()
	server := startServer(t, redisAddr, serverPolicies)
	served, err := Remote("http://"+server, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	var own *Gate
	eventually(t, "the server did not publish", func() bool {
		if own != nil {
			own.Close()
		}
		own = direct(t, redisAddr)
		_, err := own.Policy("window").Peek(ctx, "k", 1)
		return err == nil
	})
	for _, name := range []string{"window", "month", "bucket"} {
		key := "big"
		last := int64(-1)
		for i := range 20 {
			gate := []*Gate{own, served}[i%2]
			d, err := gate.Policy(name).Allow(ctx, key)
			if err != nil || d.Mode != ModeStore || !d.Allowed {
				t.Fatalf("%s: %+v, %v", name, d, err)
			}
			if last >= 0 && d.Remaining != last-1 {
				t.Fatalf("%s: %d remain after %d", name, d.Remaining, last)
			}
			last = d.Remaining
			if len(d.Quotas) == 0 || d.Quotas[0].Limit < d.Limit && len(d.Quotas) == 1 {
				t.Errorf("%s: %+v", name, d.Quotas)
			}
		}
	}
	a, _ := own.Policy("month").Peek(ctx, "big", 1)
	b, _ := served.Policy("month").Peek(ctx, "big", 1)
	if a.Rule != b.Rule || a.Limit != b.Limit || a.Headers()["RateLimit-Policy"] != b.Headers()["RateLimit-Policy"] ||
		a.ResetAfter-b.ResetAfter > time.Second || b.ResetAfter-a.ResetAfter > time.Second {
		t.Errorf("%+v, %+v", a, b)
	}
	for i := range 4 {
		first, second := []*Gate{own, served}[i%2], []*Gate{served, own}[i%2]
		permit, err := first.Policy("jobs").AcquireN(ctx, "tenant", "job-7", 1)
		if err != nil || permit.Decision.Remaining != 1 {
			t.Fatal(err)
		}
		if _, err := second.Policy("jobs").AcquireN(ctx, "tenant", "job-7", 1); !errors.Is(err, ErrLimited) {
			t.Fatal(err)
		}
		if d, err := second.Policy("jobs").Renew(ctx, "tenant", "job-7"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if d, err := second.Policy("jobs").Release(ctx, "tenant", "job-7"); err != nil || !d.Allowed || d.Remaining != 2 {
			t.Fatal(d, err)
		}
	}
	held, err := own.Policy("seen").Acquire(ctx, "tenant")
	if err != nil {
		t.Fatal(err)
	}
	for _, gate := range []*Gate{own, served} {
		over, err := gate.Policy("seen").Acquire(ctx, "tenant")
		if err != nil || over.Decision.Overflow.Kind != OverflowShadow {
			t.Fatal(over, err)
		}
		if d, err := gate.Policy("seen").Renew(ctx, "tenant", over.ID); err != nil || !d.Allowed || d.Overflow.Kind != OverflowShadow {
			t.Fatal(d, err)
		}
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAServerDecidesOverHTTP(t *testing.T) {
	ctx := context.Background()
	server := startServer(t, redisAddr(t), serverPolicies)
	gate, err := Remote("http://"+server, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	bucket := gate.Policy("bucket")
	if d, err := bucket.AllowN(ctx, "k", 4); err != nil || d.Remaining != 1 || d.Granted != 4 || d.Policy != "bucket" {
		t.Fatal(d, err)
	}
	if d, err := bucket.AllowN(ctx, "k", 4); err != nil || d.Allowed || !d.CanRetry || d.RetryAfter > 3*time.Hour || d.RetryAfter < 2*time.Hour {
		t.Fatal(d, err)
	}
	if d, err := bucket.AllowN(ctx, "k", 9); err != nil || d.Allowed || d.CanRetry {
		t.Fatal(d, err)
	}
	if d, err := bucket.AllowAtMost(ctx, "k", 9); err != nil || d.Granted != 1 {
		t.Fatal(d, err)
	}
	if d, err := bucket.Reserve(ctx, "k", 1, 2*time.Hour); err != nil || !d.Allowed || d.Pause() < 59*time.Minute {
		t.Fatal(d, err)
	}
	if d, err := bucket.Refund(ctx, "k", 2); err != nil || d.Granted != 2 {
		t.Fatal(d, err)
	}
	if _, err := bucket.Reset(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if d, err := bucket.Peek(ctx, "k", 1); err != nil || d.Remaining != 5 && d.Remaining != 4 {
		t.Fatal(d, err)
	}
	if d, err := bucket.Shared().Allow(ctx, ""); err != nil || d.Remaining != 4 {
		t.Fatal(d, err)
	}
	for range 2 {
		d, err := gate.Policy("degrade").Allow(ctx, "k")
		if err != nil || !d.Allowed && (d.Overflow.Response == nil || d.Overflow.Response.Status != 203 || d.Overflow.Response.Body != "less") {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	allow := func(l *Limiter, key string) error { _, err := l.Allow(ctx, key); return err }
	partner, _ := Remote("http://"+server, App("web"))
	for want, err := range map[*Error]error{
		ErrUnknownPolicy:      allow(gate.Policy("none"), "k"),
		ErrAppMissing:         allow(gate.Policy("import"), "k"),
		ErrPolicyNotAvailable: allow(partner.Policy("import"), "k"),
		ErrUnsupportedVerb:    allow(gate.Policy("jobs"), "k"),
		ErrKeyText:            allow(bucket, "\xff"),
		ErrRules:              func() error { _, err := gate.Limit("mail", PerSecond(1)); return err }(),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, expected %s", err, want.Name)
		}
	}
	gone, _ := Remote("http://" + freeAddr())
	if err := allow(gone.Policy("bucket"), "k"); !errors.Is(err, ErrNotCharged) {
		t.Error(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, _ = Remote("http://" + silent.Addr().String())
	if err := allow(gone.Policy("bucket"), "k"); !errors.Is(err, ErrPerhapsCharged) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestStepsAreDecidedAsByAServerAlone(t *testing.T) {
	server := serverProgram(t)
	for _, program := range []string{"python3", "cc", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			skipOrFail(t, program+" is not installed")
		}
	}
	redisAddr(t) // skips without redis-server
	own, err := filepath.Abs("scripts/agree")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "../agree/agree.py", server, "--steps", "1000", "server", own).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(": 0 differ ")) {
		t.Errorf("%v: %s", err, out)
	}
}
