package sluicegate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// remoteOf returns a gate that sends requests to a server.
func remoteOf(t *testing.T, address string, opts ...Option) *Gate {
	t.Helper()
	gate, err := Remote(address, append([]Option{Deadline(patient)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close() })
	return gate
}

// startBoth starts a server with both wires, and gives their addresses.
func startBoth(t *testing.T, policies string, env ...string) (web, resp string) {
	t.Helper()
	resp = freeAddr()
	return startServer(t, redisAddr(t), policies, append(env, "SLUICEGATE__RESP__LISTEN="+resp)...), resp
}

func TestBothWiresOfAServerSayTheSame(t *testing.T) {
	web, resp := startBoth(t, serverPolicies)
	ctx := context.Background()
	type step struct {
		name string
		call func(l *Limiter, key string) (Decision, error)
	}
	check := func(n int64) func(*Limiter, string) (Decision, error) {
		return func(l *Limiter, key string) (Decision, error) { return l.AllowN(ctx, key, n) }
	}
	acquire := func(id string) func(*Limiter, string) (Decision, error) {
		return func(l *Limiter, key string) (Decision, error) {
			p, err := l.AcquireN(ctx, key, id, 1)
			if err != nil {
				return Decision{}, err
			}
			return p.Decision, nil
		}
	}
	steps := map[string][]step{
		"bucket": {
			{"check", check(4)}, {"refused", check(4)}, {"never", check(9)},
			{"peek", func(l *Limiter, key string) (Decision, error) { return l.Peek(ctx, key, 1) }},
			{"reserve", func(l *Limiter, key string) (Decision, error) { return l.Reserve(ctx, key, 3, 3*time.Hour) }},
			{"refund", func(l *Limiter, key string) (Decision, error) { return l.Refund(ctx, key, 2) }},
			{"reset", func(l *Limiter, key string) (Decision, error) { return l.Reset(ctx, key) }},
			{"after", check(1)},
		},
		"degrade": {{"check", check(1)}, {"over", check(1)}},
		"tag":     {{"check", check(1)}, {"over", check(1)}},
		"divert":  {{"check", check(1)}, {"over", check(1)}},
		"shadow":  {{"check", check(1)}, {"over", check(1)}},
		"queue":   {{"check", check(1)}, {"held", check(1)}},
		"jobs": {
			{"acquire", acquire("job-7")},
			{"renew", func(l *Limiter, key string) (Decision, error) { return l.Renew(ctx, key, "job-7") }},
			{"release", func(l *Limiter, key string) (Decision, error) { return l.Release(ctx, key, "job-7") }},
			{"again", func(l *Limiter, key string) (Decision, error) { return l.Release(ctx, key, "job-7") }},
			{"unsupported", check(1)},
		},
		"seen": {
			{"acquire", acquire("first")}, {"over", acquire("second")},
			{"renew", func(l *Limiter, key string) (Decision, error) { return l.Renew(ctx, key, "second") }},
			{"release", func(l *Limiter, key string) (Decision, error) { return l.Release(ctx, key, "second") }},
		},
		"none": {{"unknown", check(1)}},
	}
	over, fast := remoteOf(t, "http://"+web), remoteOf(t, "resp://"+resp)
	if err := errors.Join(over.Ping(ctx), fast.Ping(ctx)); err != nil {
		t.Error(err)
	}
	for policy, list := range steps {
		for _, s := range list {
			a, errA := s.call(over.Policy(policy), "a")
			b, errB := s.call(fast.Policy(policy), "b")
			if errA != nil || errB != nil {
				var x, y *Error
				if !errors.As(errA, &x) || !errors.As(errB, &y) || x.Name != y.Name || x.Error() != y.Error() {
					t.Errorf("%s, %s: %v over HTTP, %v over RESP", policy, s.name, errA, errB)
				}
				continue
			}
			near := func(a, b time.Duration) bool { return a-b < patient && b-a < patient && (a == 0) == (b == 0) }
			if !near(a.ResetAfter, b.ResetAfter) || !near(a.RetryAfter, b.RetryAfter) || !near(a.Wait, b.Wait) {
				t.Errorf("%s, %s: times of %+v over HTTP, of %+v over RESP", policy, s.name, a, b)
			}
			// Leave out the fields that RESP does not have, and those that change with time.
			for _, d := range []*Decision{&a, &b} {
				d.ResetAfter, d.RetryAfter, d.Wait, d.Held, d.Quotas = 0, 0, 0, 0, nil
				if d.Overflow.Response != nil {
					d.Overflow.Tag = d.Overflow.Response.Body
					d.Overflow.Response = nil
				}
			}
			if x, y := a, b; !sameDecision(x, y) {
				t.Errorf("%s, %s: %+v over HTTP, %+v over RESP", policy, s.name, a, b)
			}
		}
	}
	if d, err := fast.Policy("bucket").Shared().Allow(ctx, ""); err != nil || d.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := fast.Policy("bucket").Allow(ctx, "\xff\x00"); err != nil || d.Remaining != 4 {
		t.Errorf("a key of any bytes: %+v, %v", d, err)
	}
	if d, err := remoteOf(t, "resp://"+resp, App("partner")).Policy("import").Allow(ctx, "k"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := fast.Policy("import").Allow(ctx, "k"); !errors.Is(err, ErrUnknownPolicy) {
		t.Errorf("the wire does not tell a policy for others from an unknown one: %v", err)
	}
}

func sameDecision(a, b Decision) bool {
	return a.Allowed == b.Allowed && a.Granted == b.Granted && a.Limit == b.Limit && a.Remaining == b.Remaining &&
		a.CanRetry == b.CanRetry && a.Policy == b.Policy && a.Rule == b.Rule && a.Mode == b.Mode && a.Overflow == b.Overflow
}

// net/http refuses such a field with each request, before it is sent: nothing may say that it was perhaps charged.
func TestATokenThatNoFieldCanHaveIsFoundAtTheStart(t *testing.T) {
	for _, token := range []string{"s3cret\r\nX: y", "s3cret\x00", "s3cret\x7f"} {
		_, err := Remote("http://gate", Token(token))
		if err == nil || err.Error() != "token: has a character that a header field cannot have" {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestWhatAWireLacksIsATypedError(t *testing.T) {
	web, resp := startBoth(t, serverPolicies)
	ctx := context.Background()
	served, over, own := remoteOf(t, "resp://"+resp), remoteOf(t, "http://"+web), newGate(t, newManual(), Rules("bucket", PerSecond(1)))
	for _, c := range []struct {
		verb string
		gate *Gate
		want *Error
		text string
	}{
		{"at_most", served, ErrNotOnThisWire, "op: `at_most` is not available over RESP"},
		{"settle", served, ErrNotOnThisWire, "op: `settle` is not available over RESP"},
		{"explain", served, ErrNotOnThisWire, "op: `explain` is not available over RESP"},
		{"batch", served, ErrNotOnThisWire, "op: `batch` is not available over RESP"},
		{"settle", own, ErrNotInDirectMode, "op: `settle` is not available in direct mode; ask a server"},
		{"explain", own, ErrNotInDirectMode, "op: `explain` is not available in direct mode; ask a server"},
		{"batch", own, ErrNotInDirectMode, "op: `batch` is not available in direct mode; ask a server"},
	} {
		var err error
		switch l := c.gate.Policy("bucket"); c.verb {
		case "at_most":
			_, err = l.AllowAtMost(ctx, "k", 1)
		case "settle":
			_, err = l.Settle(ctx, "k", "id", 1, 1)
		case "explain":
			_, err = l.Explain(ctx, "k", 1)
		default:
			_, err = c.gate.AllowAll(ctx, Check{l, "k", 1})
		}
		if !errors.Is(err, c.want) || err.Error() != c.text {
			t.Errorf("%s: %v", c.verb, err)
		}
	}
	// Checks that are decided by themselves need no server.
	for _, gate := range []*Gate{served, over} {
		results, err := gate.AllowEach(ctx, Check{gate.Policy("bucket"), "each", 2}, Check{gate.Policy("none"), "k", 1},
			Check{gate.Policy("bucket"), "", 1}, Check{gate.Policy("window"), "each", 0}, Check{Key: "k"})
		if err != nil || len(results) != 5 || !results[0].Decision.Allowed || !errors.Is(results[1].Err, ErrUnknownPolicy) ||
			!errors.Is(results[2].Err, ErrKeyEmpty) || results[3].Decision.Granted != 1 || !errors.Is(results[4].Err, ErrRules) {
			t.Errorf("%+v, %v", results, err)
		}
	}
	mail, _ := own.Limit("mail", FixedWindow(2, time.Hour))
	results, err := own.AllowEach(ctx, Check{mail, "k", 2}, Check{mail, "k", 1})
	if err != nil || !results[0].Decision.Allowed || results[1].Decision.Allowed {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestOnlyAServerSettles(t *testing.T) {
	web, _ := startBoth(t, serverPolicies)
	ctx := context.Background()
	window := remoteOf(t, "http://"+web).Policy("window")
	for _, c := range []struct {
		id                       string
		charged, cost            int64
		refunded, taken, missing int64
	}{
		{"back", 50, 38, 12, 0, 0}, {"same", 5, 5, 0, 0, 0}, {"more", 10, 20, 0, 10, 0}, {"too much", 1, 200, 0, 52, 147}, {"free", 30, 0, 30, 0, 0},
	} {
		if c.id == "back" {
			if d, err := window.AllowN(ctx, "k", 50); err != nil || d.Remaining != 50 {
				t.Fatal(d, err)
			}
		}
		got, err := window.Settle(ctx, "k", c.id, c.charged, c.cost)
		if err != nil || got.Refunded != c.refunded || got.Taken != c.taken || got.Missing != c.missing || got.Decision.Rule != "fixed_window" {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
		var problem *Error
		if _, err := window.Settle(ctx, "k", c.id, c.charged, c.cost); !errors.As(err, &problem) || problem.Name != "server" || problem.Status != 409 {
			t.Errorf("%s a second time: %v", c.id, err)
		}
	}
	for want, err := range map[*Error]error{
		ErrIDLength:      func() error { _, err := window.Settle(ctx, "k", "", 1, 1); return err }(),
		ErrCostRange:     func() error { _, err := window.Settle(ctx, "k", "x", 0, 1); return err }(),
		ErrKeyEmpty:      func() error { _, err := window.Settle(ctx, "", "x", 1, 1); return err }(),
		ErrUnknownPolicy: func() error { _, err := window.gate.Policy("none").Settle(ctx, "k", "x", 1, 1); return err }(),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, expected %s", err, want.Name)
		}
	}
}

func TestAServerExplains(t *testing.T) {
	web, _ := startBoth(t, serverPolicies)
	ctx, seen := context.Background(), []string{}
	gate := remoteOf(t, "http://"+web, App("web"), Observer(func(_ context.Context, o Observation) { seen = append(seen, o.Verb+" "+o.Policy) }))
	got, err := gate.Policy("month").Explain(ctx, "k", 3)
	if err != nil || !got.Decision.Allowed || got.WouldCharge != 3 || got.Overridden || got.Overflow != "reject" ||
		got.OnStoreFailure != "local" || got.App != "web" || got.Apps != nil || len(got.Rules) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	first, second := got.Rules[0], got.Rules[1]
	if first.Name != "m" || first.Algorithm != "fixed_window" || first.Limit != 100 || !first.Known || !first.Allowed ||
		second.Name != "l" || second.Algorithm != "sliding_log" || second.Window != time.Hour || second.Remaining != 50 {
		t.Errorf("%+v", got.Rules)
	}
	got, err = gate.Policy("bucket").Explain(ctx, "big", 60)
	if err != nil || got.Decision.Allowed || got.Decision.CanRetry || !got.Overridden || got.WouldCharge != 0 || got.Rules[0].Limit != 50 {
		t.Errorf("%+v, %v", got, err)
	}
	if strings.Join(seen, ", ") != "explain month, explain bucket" {
		t.Errorf("observed %v", seen)
	}
}

func TestABatchPassesTogetherOrNotAtAll(t *testing.T) {
	web, _ := startBoth(t, serverPolicies)
	ctx, seen := context.Background(), []string{}
	gate := remoteOf(t, "http://"+web, Observer(func(_ context.Context, o Observation) {
		seen = append(seen, fmt.Sprintf("%s %s %v", o.Verb, o.Policy, o.Err == nil && o.Decision.Allowed))
	}))
	window, bucket := gate.Policy("window"), gate.Policy("bucket")
	got, err := gate.AllowAll(ctx, Check{window, "k", 40}, Check{bucket, "k", 2}, Check{bucket.Shared(), "", 1})
	if err != nil || !got.Allowed || got.Refused != -1 || len(got.Decisions) != 3 || got.Decisions[0].Remaining != 60 || got.Decisions[1].Policy != "bucket" {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err = gate.AllowAll(ctx, Check{window, "k", 40}, Check{bucket, "k", 4})
	if err != nil || got.Allowed || got.Refused != 1 || len(got.Decisions) != 1 || got.Decisions[0].Policy != "bucket" || !got.Decisions[0].CanRetry {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := strings.Join(seen, ", "); got != "check window true, check bucket true, check bucket true, check bucket false" {
		t.Errorf("observed %s", got)
	}
	if d, err := window.Peek(ctx, "k", 1); err != nil || d.Remaining != 60 {
		t.Errorf("a refused batch took permits: %+v, %v", d, err)
	}
	if _, err := gate.AllowAll(ctx, Check{window, "k", 1}, Check{gate.Policy("none"), "k", 1}); !errors.Is(err, ErrUnknownPolicy) {
		t.Error(err)
	}
	if _, err := gate.AllowAll(ctx); !errors.Is(err, ErrServer) {
		t.Errorf("an empty batch: %v", err)
	}
}

// through serves a listener by what is at another address.
func through(t *testing.T, l net.Listener, addr string) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer far.Close()
				go func() { io.Copy(near, far); near.Close() }()
				io.Copy(far, near)
			}()
		}
	}()
}

func TestRESPWorksWithATokenOverTLSAndOverASocket(t *testing.T) {
	ctx, secret := context.Background(), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, resp := startBoth(t, serverPolicies, "SLUICEGATE__RESP__PASSWORD_FILE="+secret)
	// The certificate of httptest is for 127.0.0.1.
	known := httptest.NewTLSServer(nil)
	defer known.Close()
	pool := x509.NewCertPool()
	pool.AddCert(known.Certificate())
	inTLS, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: known.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	through(t, inTLS, resp)
	path := filepath.Join(t.TempDir(), "gate.sock")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	through(t, socket, resp)
	token, trust := Token("open sesame"), TLS(&tls.Config{RootCAs: pool})
	for i, c := range []struct {
		address string
		opts    []Option
	}{
		{"resp://" + resp, []Option{token}}, {"resps://" + inTLS.Addr().String(), []Option{token, trust}},
		{"unix:" + path, []Option{token}}, {"unix://" + path, []Option{token}},
	} {
		d, err := remoteOf(t, c.address, c.opts...).Policy("window").Allow(ctx, "k")
		if err != nil || d.Remaining != 99-int64(i) || d.Mode != ModeStore {
			t.Errorf("%s: %+v, %v", c.address, d, err)
		}
	}
	for _, opts := range [][]Option{nil, {Token("wrong")}} {
		if _, err := remoteOf(t, "resp://"+resp, opts...).Policy("window").Allow(ctx, "k"); !errors.Is(err, ErrServer) {
			t.Errorf("%d options: %v", len(opts), err)
		}
	}
	if _, err := remoteOf(t, "resps://"+inTLS.Addr().String(), token).Policy("window").Allow(ctx, "k"); !errors.Is(err, ErrNotCharged) {
		t.Errorf("an unknown authority: %v", err)
	}
	for _, address := range []string{"resp://", "resp://gate", "unix:", "ftp://gate", "gate:8080", "redis://gate:6379"} {
		if _, err := Remote(address); err == nil {
			t.Errorf("%s is an address of a server", address)
		}
	}
}

func TestALostReplyOfRESPIsPerhapsChargedAndNotRepeated(t *testing.T) {
	_, resp := startBoth(t, serverPolicies)
	ctx, other := context.Background(), remoteOf(t, "resp://"+resp)
	proxy := newCutterOf(t, resp, "SG.")
	gate := remoteOf(t, "resp://"+proxy.addr)
	for i := range int64(6) {
		proxy.arm(func(length int) int { return length * int(i) / 6 })
		if _, err := gate.Policy("window").Allow(ctx, "k"); !errors.Is(err, ErrPerhapsCharged) {
			t.Fatalf("try %d: %v", i, err)
		}
		if d, err := other.Policy("window").Peek(ctx, "k", 1); err != nil || d.Remaining != 99-i {
			t.Fatalf("try %d: %+v, %v", i, d, err)
		}
	}
	if _, err := remoteOf(t, "resp://"+freeAddr()).Policy("window").Allow(ctx, "k"); !errors.Is(err, ErrNotCharged) {
		t.Error(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := remoteOf(t, "resp://"+silent.Addr().String()).Policy("window").Allow(soon, "k"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotCharged) {
		t.Errorf("a server that is silent as the connection is made: %v", err)
	}
}

// TestAServerThatDripsIsNotWaitedFor has a server that sends its answer byte by byte, without an end.
func TestAServerThatDripsIsNotWaitedFor(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}))
	defer slow.Close()
	for _, c := range []struct {
		deadline, context time.Duration
		want              *Error
	}{{100 * time.Millisecond, patient, ErrPerhapsCharged}, {patient, 100 * time.Millisecond, ErrInterrupted}} {
		ctx, cancel := context.WithTimeout(context.Background(), c.context)
		started := time.Now()
		_, err := remoteOf(t, slow.URL, Deadline(c.deadline)).Policy("a").Allow(ctx, "k")
		cancel()
		if took := time.Since(started); !errors.Is(err, c.want) || took > patient/2 {
			t.Errorf("%v after %v, expected %s", err, took, c.want.Name)
		}
	}
}
