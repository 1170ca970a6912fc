package sluicegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

const waitPolicies = `{"policies":[
 {"name":"pool","rules":[{"concurrency":{"limit":1,"ttl":"1h","queue":1000}}]},
 {"name":"line","rules":[{"concurrency":{"limit":1,"ttl":"1h","queue":1}}],"overflow":{"queue":{"max_wait":"1h"}}},
 {"name":"tags","rules":[{"concurrency":{"limit":1,"ttl":"1h","queue":1000}}],"overflow":{"degrade":{"tag":"small"}}},
 {"name":"plain","rules":[{"concurrency":{"limit":1,"ttl":"1h"}}]},
 {"name":"window","rules":[{"fixed_window":{"limit":1000,"window":"1h"}}]}
]}`

// waitServer is a server at which requests wait.
type waitServer struct{ web, resp, admin string }

func startWaitServer(t *testing.T) waitServer {
	t.Helper()
	admin := freeAddr()
	web, resp := startBoth(t, waitPolicies, "SLUICEGATE__ADMIN__LISTEN="+admin)
	return waitServer{web, resp, admin}
}

// gates returns a gate of each wire.
func (s waitServer) gates(t *testing.T) map[string]*Gate {
	return map[string]*Gate{"http": remoteOf(t, "http://"+s.web), "resp": remoteOf(t, "resp://"+s.resp)}
}

// awaitWaiting waits until so many requests wait at the server.
func (s waitServer) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests do not wait", n), func() bool {
		answer, err := http.Get("http://" + s.admin + "/metrics")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return bytes.Contains(text, []byte(fmt.Sprintf("\nsluicegate_held_requests %d\n", n)))
	})
}

// mustHold acquires the only permit of a policy.
func mustHold(t *testing.T, l *Limiter, key string) *Permit {
	t.Helper()
	permit, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return permit
}

// mustBeFree claims that nobody holds or waits for a permit of a policy.
func mustBeFree(t *testing.T, l *Limiter, key string) {
	t.Helper()
	eventually(t, "a permit is held still", func() bool {
		d, err := l.Peek(context.Background(), key, 1)
		return err == nil && d.Remaining == d.Limit
	})
}

func TestARequestWaitsForAPermitOverBothWires(t *testing.T) {
	server, ctx := startWaitServer(t), context.Background()
	for wire, gate := range server.gates(t) {
		pool := gate.Policy("pool")
		held := mustHold(t, pool, wire)
		got := make(chan *Permit, 1)
		go func() {
			permit, err := pool.AcquireWithin(ctx, wire, time.Hour)
			if err != nil {
				t.Error(wire, err)
			}
			got <- permit
		}()
		server.awaitWaiting(t, 1)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		permit := <-got
		if permit == nil || wire == "http" && permit.Decision.Held == 0 {
			t.Fatalf("%s: %+v", wire, permit)
		}
		if _, err := pool.AcquireNWithin(ctx, wire, "job-7", 1, time.Millisecond); !errors.Is(err, ErrLimited) {
			t.Errorf("%s: %v", wire, err)
		}
		if err := permit.Release(ctx); err != nil {
			t.Error(err)
		}
		named, err := pool.AcquireNWithin(ctx, wire, "job-7", 1, 0)
		if err != nil || named.ID != "job-7" {
			t.Fatal(named, err)
		}
		if d, err := pool.Release(ctx, wire, "job-7"); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		mustBeFree(t, pool, wire)
	}
}

func TestAWaitMayBeLongerThanTheDeadline(t *testing.T) {
	server, ctx := startWaitServer(t), context.Background()
	for _, address := range []string{"http://" + server.web, "resp://" + server.resp} {
		gate := remoteOf(t, address, Deadline(time.Second))
		held := mustHold(t, gate.Policy("pool"), address)
		if _, err := gate.Policy("pool").AcquireWithin(ctx, address, 1100*time.Millisecond); !errors.Is(err, ErrLimited) {
			t.Errorf("%s: %v", address, err)
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		// A policy that holds requests back for longer than the deadline leaves them without an answer, and nothing held.
		brief := remoteOf(t, address, Deadline(300*time.Millisecond)).Policy("line")
		held = mustHold(t, gate.Policy("line"), address)
		if _, err := brief.Acquire(ctx, address); !errors.Is(err, ErrPerhapsCharged) {
			t.Errorf("%s: %v", address, err)
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		mustBeFree(t, gate.Policy("line"), address)
	}
}

func TestAWaitThatCannotBeIsAnError(t *testing.T) {
	server, ctx := startWaitServer(t), context.Background()
	for wire, gate := range server.gates(t) {
		_, err := gate.Policy("plain").AcquireWithin(ctx, "k", time.Second)
		want := "op: `acquire` is not supported by policy `plain`: not every `concurrency` rule has a `queue`, so no request can wait for a permit"
		if !errors.Is(err, ErrUnsupportedVerb) || err.Error() != want {
			t.Errorf("%s: %v, expected %s", wire, err, want)
		}
		for _, wait := range []time.Duration{-1, 1<<63 - 1} {
			if _, err := gate.Policy("pool").AcquireWithin(ctx, "k", wait); !errors.Is(err, ErrMaxWaitRange) {
				t.Errorf("%s: %v", wire, err)
			}
			if _, err := gate.Policy("pool").AcquireNWithin(ctx, "k", "id", 1, wait); !errors.Is(err, ErrMaxWaitRange) {
				t.Errorf("%s: %v", wire, err)
			}
		}
		if _, err := gate.Policy("pool").AcquireNWithin(ctx, "k", "", 1, 0); !errors.Is(err, ErrIDLength) {
			t.Errorf("%s: %v", wire, err)
		}
		var over *LimitedError
		held := mustHold(t, gate.Policy("tags"), wire)
		if _, err := gate.Policy("tags").AcquireWithin(ctx, wire, time.Millisecond); !errors.As(err, &over) || over.Decision.Overflow.Tag != "small" {
			t.Errorf("%s: %v", wire, err)
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	memory, err := InMemory(Rules("jobs", Concurrency(1, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	own := direct(t, freeAddr(), NoWarmUp(), Logger(nil)) // no Redis: nothing is sent
	limit, err := own.Limit("jobs", Concurrency(1, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, inMemory := memory.Policy("jobs").AcquireWithin(ctx, "k", time.Second)
	_, withoutQueue := limit.AcquireWithin(ctx, "k", time.Second)
	for want, err := range map[string]error{
		"op: `acquire` that waits for a permit is not available in memory; ask a server":                                                   inMemory,
		"op: `acquire` is not supported by policy `jobs`: not every `concurrency` rule has a `queue`, so no request can wait for a permit": withoutQueue,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
	if !errors.Is(inMemory, ErrNotInDirectMode) || !errors.Is(withoutQueue, ErrUnsupportedVerb) {
		t.Error(inMemory, withoutQueue)
	}
}

func TestARequestWhoseContextEndsWaitsNoLonger(t *testing.T) {
	server := startWaitServer(t)
	for wire, gate := range server.gates(t) {
		pool := gate.Policy("pool")
		held := mustHold(t, pool, wire)
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := pool.AcquireWithin(ctx, wire, time.Hour)
			failed <- err
		}()
		server.awaitWaiting(t, 1)
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrInterrupted) {
			t.Errorf("%s: %v", wire, err)
		}
		server.awaitWaiting(t, 0)
		if err := held.Release(context.Background()); err != nil {
			t.Error(err)
		}
		mustBeFree(t, pool, wire)
	}
}

// A server over RESP notices only after 100 ms that a caller is gone, and grants the permit until then.
func TestPermitsThatAreGrantedToCallersWhoAreGoneAreFreeAtOnce(t *testing.T) {
	server := startWaitServer(t)
	for wire, gate := range server.gates(t) {
		pool := gate.Policy("pool")
		held := mustHold(t, pool, wire)
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		const waiters = 10
		for range waiters {
			go func() {
				_, err := pool.AcquireWithin(ctx, wire, time.Hour)
				failed <- err
			}()
		}
		server.awaitWaiting(t, waiters)
		cancel()
		if err := held.Release(context.Background()); err != nil {
			t.Error(err)
		}
		for range waiters {
			if err := <-failed; !errors.Is(err, ErrInterrupted) {
				t.Errorf("%s: %v", wire, err)
			}
		}
		if d, err := pool.Peek(context.Background(), wire, 1); err != nil || d.Remaining != 1 {
			t.Errorf("%s: %+v, %v", wire, d, err)
		}
	}
}

// lostAnswers sends requests, and keeps the answer to an acquire until its caller goes away.
type lostAnswers struct{ answered chan struct{} }

func (l lostAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/v1/acquire" {
		return http.DefaultTransport.RoundTrip(r)
	}
	answer, err := http.DefaultTransport.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
	if err != nil {
		return nil, err
	}
	answer.Body.Close()
	l.answered <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// loseAnswers passes a server on, and keeps the answer to an acquire.
func loseAnswers(t *testing.T, to string, answered chan struct{}) string {
	return testkit.Accept(t, func(near net.Conn) {
		defer near.Close()
		far, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer far.Close()
		in, out := make([]byte, 1<<12), make([]byte, 1<<12)
		for {
			n, err := near.Read(in)
			if err != nil {
				return
			}
			_, _ = far.Write(in[:n])
			m, err := far.Read(out)
			if err != nil {
				return
			}
			if strings.Contains(string(in[:n]), "SG.ACQUIRE") {
				answered <- struct{}{}
				continue
			}
			_, _ = near.Write(out[:m])
		}
	})
}

func TestAPermitThatWasGrantedAsTheContextEndedIsFree(t *testing.T) {
	server, answered := startWaitServer(t), make(chan struct{})
	http := remoteOf(t, "http://"+server.web, HTTPClient(&http.Client{Transport: lostAnswers{answered}})).Policy("pool")
	resp := remoteOf(t, "resp://"+loseAnswers(t, server.resp, answered)).Policy("pool")
	for name, acquire := range map[string]func(ctx context.Context, name string) (*Permit, error){
		"within over http": func(ctx context.Context, name string) (*Permit, error) {
			return http.AcquireWithin(ctx, name, time.Hour)
		},
		"within over resp": func(ctx context.Context, name string) (*Permit, error) {
			return resp.AcquireWithin(ctx, name, time.Hour)
		},
		"now over http": http.Acquire,
	} {
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := acquire(ctx, name)
			failed <- err
		}()
		<-answered
		if d, err := http.Peek(context.Background(), name, 1); err != nil || d.Allowed {
			t.Errorf("%s: the permit is not held: %+v, %v", name, d, err)
		}
		cancel()
		if err := <-failed; !errors.Is(err, ErrInterrupted) {
			t.Errorf("%s: %v", name, err)
		}
		if d, err := http.Peek(context.Background(), name, 1); err != nil || !d.Allowed {
			t.Errorf("%s: the permit is held still: %+v, %v", name, d, err)
		}
	}
}

// More requests wait than a gate has connections for, and all others are answered as if none did.
func TestRequestsThatWaitOverRESPHoldUpNoOthers(t *testing.T) {
	server, ctx := startWaitServer(t), context.Background()
	gate := remoteOf(t, "resp://"+server.resp)
	pool := gate.Policy("pool")
	held := mustHold(t, pool, "k")
	const waiters = respWaitsMax + 16
	var all sync.WaitGroup
	for range waiters {
		all.Add(1)
		go func() {
			defer all.Done()
			permit, err := pool.AcquireWithin(ctx, "k", time.Hour)
			if err == nil {
				err = permit.Release(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	server.awaitWaiting(t, respWaitsMax)
	together(respConnsMax, func(int) {
		if d, err := gate.Policy("window").Allow(ctx, "k"); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
	// What gets no connection in its time is answered all the same; so is one whose context ends meanwhile.
	if _, err := pool.AcquireWithin(ctx, "k", time.Millisecond); !errors.Is(err, ErrLimited) {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := pool.AcquireWithin(gone, "k", time.Hour); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotCharged) {
		t.Error(err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	all.Wait()
	mustBeFree(t, pool, "k")
	waits := gate.decider.(*resp).waits
	if len(waits.open) > respWaitsMax || len(waits.idle) != len(waits.open) || len(waits.slots) != 0 {
		t.Errorf("%d connections, %d idle, %d in use", len(waits.open), len(waits.idle), len(waits.slots))
	}
}

func TestAGateThatIsClosedEndsItsWaits(t *testing.T) {
	server := startWaitServer(t)
	other, gate := remoteOf(t, "resp://"+server.resp), remoteOf(t, "resp://"+server.resp)
	held := mustHold(t, other.Policy("pool"), "k")
	failed := make(chan error)
	go func() {
		_, err := gate.Policy("pool").AcquireWithin(context.Background(), "k", time.Hour)
		failed <- err
	}()
	server.awaitWaiting(t, 1)
	gate.Close()
	if err := <-failed; !errors.Is(err, ErrPerhapsCharged) {
		t.Error(err)
	}
	server.awaitWaiting(t, 0)
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	mustBeFree(t, other.Policy("pool"), "k")
	if _, err := gate.Policy("pool").AcquireWithin(context.Background(), "k", 0); !errors.Is(err, ErrNotCharged) {
		t.Error(err)
	}
}

func TestAScriptedGateGetsTheLongestWait(t *testing.T) {
	var got []Request
	gate := ByFunc(func(_ context.Context, r Request) (Decision, error) {
		got = append(got, r)
		return Decision{Allowed: true}, nil
	})
	if _, err := gate.Policy("jobs").AcquireNWithin(context.Background(), "k", "job-7", 2, time.Second); err != nil {
		t.Fatal(err)
	}
	if want := (Request{Policy: "jobs", Verb: "acquire", Key: "k", Cost: 2, MaxWait: time.Second, ID: "job-7"}); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
}

func TestAPermitThatRedisMayGrantTooLateIsReleasedInTheBackground(t *testing.T) {
	for _, c := range []struct {
		answer   string
		releases int
	}{
		{`"allowed":false,"mode":"shed"`, 1}, {`"allowed":false,"mode":"deny"`, 1}, {`"allowed":false,"mode":"local"`, 1},
		{`"allowed":true,"mode":"local"`, 2}, {`"allowed":false`, 0},
	} {
		ids, released := make(chan string, 1), make(chan string, 9)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct{ ID string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			answer := c.answer
			if r.URL.Path == "/v1/acquire" {
				ids <- body.ID
			} else {
				released <- body.ID
				if !strings.Contains(answer, "local") {
					answer = `"allowed":true`
				}
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{%s,"granted":0,"wait_us":0,"limit":1,"remaining":0,"retry_after_us":1000,"reset_after_us":0,"rule":"r","id":%q}`, answer, body.ID)
		}))
		permit, err := remoteOf(t, server.URL).Policy("p").Acquire(context.Background(), "k")
		if permit != nil {
			err = permit.Release(context.Background())
		}
		if err != nil && !errors.Is(err, ErrLimited) {
			t.Error(c.answer, err)
		}
		id := <-ids
		for range c.releases {
			if got := <-released; got != id {
				t.Errorf("%s: %q is released, and not %q", c.answer, got, id)
			}
		}
		server.Close()
		if len(released) > 0 {
			t.Errorf("%s: it is released again", c.answer)
		}
	}
}
