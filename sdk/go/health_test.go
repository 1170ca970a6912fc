package sluicegate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

// isHealth fails unless the health of a gate is such.
func isHealth(t *testing.T, what string, gate *Gate, status Status, address string, err error, text string) {
	t.Helper()
	h := gate.Health(context.Background())
	if h.Status != status || h.Address != address || !errors.Is(h.Err, err) || (h.Err == nil) != (err == nil) ||
		h.Err != nil && !strings.Contains(h.Err.Error(), text) || strings.Contains(fmt.Sprint(h), "secret") {
		t.Errorf("%s: %+v, expected %s, %s, %v, %s", what, h, status, address, err, text)
	}
}

func TestHealthOfAGateThatDecidesInRedis(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	limits := direct(t, addr)
	isHealth(t, "limits made in code need no policies", limits, StatusUp, addr, nil, "")
	gate := direct(t, addr)
	gate.Policy("a")
	isHealth(t, "nothing is published", gate, StatusDown, addr, ErrNothingPublished, addr)
	isHealth(t, "nothing that is named is published", direct(t, addr, Policies("a")), StatusDown, addr, ErrNothingPublished, addr)

	if _, err := gate.Policy("a").Allow(ctx, "k"); !errors.Is(err, ErrNothingPublished) {
		t.Error(err)
	}
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	isHealth(t, "a policy", gate, StatusUp, addr, nil, "")
	if h := gate.Health(ctx); h.Policies != 1 {
		t.Errorf("%+v", h)
	}
	publishRecords(t, addr, 2, map[string]string{"a": "{", "b": "{"})
	isHealth(t, "a policy that cannot be read", gate, StatusDegraded, addr, ErrUnreadablePolicy, "`a`")
	if err := dial(t, addr).HSet(ctx, policy.PoliciesKey, "#format", "2", "#revision", "3").Err(); err != nil {
		t.Fatal(err)
	}
	isHealth(t, "another format", gate, StatusDegraded, addr, ErrUnreadablePolicy, "later version")
	if err := dial(t, addr).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	isHealth(t, "they are gone", gate, StatusDegraded, addr, ErrNothingPublished, addr)
	isHealth(t, "in memory", newGate(t, newManual()), StatusUp, "", nil, "")
	isHealth(t, "by a function", ByFunc(nil), StatusUp, "", nil, "")
}

// named is a gate whose health is asked for by the names of policies.
type named struct {
	gate     *Gate
	policies []string
	status   Status
	err      error
}

func (n named) check(t *testing.T, what string) {
	t.Helper()
	h := n.gate.Health(context.Background(), n.policies...)
	if h.Status != n.status || !errors.Is(h.Err, n.err) || (h.Err == nil) != (n.err == nil) {
		t.Errorf("%s: %+v, expected %s, %v", what, h, n.status, n.err)
	}
}

func TestHealthOfPoliciesThatAreNamed(t *testing.T) {
	addr := redisAddr(t)
	publishRecords(t, addr, 1, map[string]string{"a": recordOf(t, 1, PerHour(1)), "partner": recordWith(t, "partner", nil)})
	for what, n := range map[string]named{
		"one that is published": {direct(t, addr), []string{"a"}, StatusUp, nil},
		"one that is unknown":   {direct(t, addr), []string{"a", "ordres"}, StatusDegraded, ErrUnknownPolicy},
		"none that is known":    {direct(t, addr), []string{"ordres"}, StatusDown, ErrUnknownPolicy},
		"one of others":         {direct(t, addr), []string{"a", "partner"}, StatusDegraded, ErrPolicyNotAvailable},
		"in memory":             {newGate(t, newManual(), Rules("a", PerHour(1))), []string{"a", "b"}, StatusDegraded, ErrUnknownPolicy},
		"without Redis":         {direct(t, freeAddr(), Deadline(20*time.Millisecond)), []string{"a"}, StatusDown, ErrNotCharged},
	} {
		n.check(t, what)
	}
}

func TestHealthOfPoliciesOfAServerThatAreNamed(t *testing.T) {
	web, resp := startBoth(t, serverPolicies)
	for _, address := range []string{"http://" + web, "resp://" + resp} {
		named{remoteOf(t, address), []string{"window", "jobs"}, StatusUp, nil}.check(t, address)
		named{remoteOf(t, address), []string{"window", "ordres"}, StatusDegraded, ErrUnknownPolicy}.check(t, address)
		named{remoteOf(t, address), []string{"ordres"}, StatusDown, ErrUnknownPolicy}.check(t, address)
	}
}

func TestHealthOfAGateWithoutRedis(t *testing.T) {
	gone := freeAddr()
	gate := direct(t, gone)
	isHealth(t, "limits made in code are decided by a share", gate, StatusDegraded, gone, ErrNotCharged, "refused")
	gate.Policy("a")
	isHealth(t, "no policy is known", gate, StatusDown, gone, ErrNotCharged, "refused")

	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(func() { other.Close(); web.Close() })
	silent := direct(t, other.Addr().String(), Deadline(20*time.Millisecond))
	silent.Policy("a")
	isHealth(t, "a server that sends nothing", silent, StatusDown, other.Addr().String(), ErrNotCharged, "no answer in time")
	address := strings.TrimPrefix(web.URL, "http://")
	speaks := direct(t, address)
	speaks.Policy("a")
	isHealth(t, "not a Redis", speaks, StatusDown, address, ErrNotCharged, address)
}

// One that passes its deadline is seen also if Redis answers looks, which have more time.
func TestAGateWhoseRequestsHaveNoAnswerIsDegraded(t *testing.T) {
	addr := redisAddr(t)
	publish(t, addr, 1, FixedWindow(100, time.Hour))
	relay, log := newSlowRelay(t, addr, 0, 0), &lines{}
	gate := coldGate(t, relay.Addr, nil, NoWarmUp(), log.logger())
	a := gate.Policy("a")
	eventually(t, "redis does not decide", func() bool {
		d, err := a.Allow(context.Background(), "k")
		return err == nil && d.Mode == ModeStore
	})
	isHealth(t, "before", gate, StatusUp, relay.Addr, nil, "")
	relay.Later.Store(int64(70 * time.Millisecond))
	eventually(t, "the share does not decide", func() bool { // shed while the process is late itself
		d, err := a.Allow(context.Background(), "k")
		return err == nil && d.Mode == ModeLocal
	})
	// Perhaps of a debt that is paid meanwhile.
	if h := gate.Health(context.Background()); h.Status != StatusDegraded || h.Err == nil || !strings.Contains(h.Err.Error(), relay.Addr+": no answer in time") {
		t.Errorf("slow: %+v", h)
	}
	if got := log.with("redis does not answer", relay.Addr, "no answer in time", "mode=local", "1/1 of each limit"); len(got) != 1 {
		t.Errorf("%s", log)
	}
	relay.Later.Store(0)
	eventually(t, "redis does not decide", func() bool {
		d, err := a.Allow(context.Background(), "k")
		return err == nil && d.Mode == ModeStore
	})
	// A payment that began before may end late.
	eventually(t, "it stays degraded", func() bool { return gate.Health(context.Background()).Status == StatusUp })
	if got := log.with("redis decides again", relay.Addr, "after="); len(got) == 0 {
		t.Errorf("%s", log)
	}
}

func TestHealthOfAGateThatAsksAServer(t *testing.T) {
	ctx := context.Background()
	var mu sync.Mutex
	status := 200
	set := func(to int) { mu.Lock(); status = to; mu.Unlock() }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/readyz" && status != 503 {
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(goodAnswer))
	}))
	t.Cleanup(server.Close)
	address, clock := strings.TrimPrefix(server.URL, "http://"), newManual()
	gate := remoteOf(t, server.URL, Token("secret"), WithClock(clock))
	isHealth(t, "ready", gate, StatusUp, address, nil, "")
	set(401)
	isHealth(t, "before a request", gate, StatusUp, address, nil, "")
	_, _ = gate.Policy("a").Allow(ctx, "k")
	isHealth(t, "a wrong token", gate, StatusDown, address, ErrServer, "401")
	set(500)
	_, _ = gate.Policy("a").Allow(ctx, "k")
	isHealth(t, "500", gate, StatusDegraded, address, ErrServer, "500")
	set(409)
	_, _ = gate.Policy("a").Settle(ctx, "k", "id", 1, 1)
	isHealth(t, "a request was wrong", gate, StatusDegraded, address, ErrServer, "500")
	clock.Advance(failureLasts)
	isHealth(t, "a minute later", gate, StatusUp, address, nil, "")
	set(503)
	isHealth(t, "not ready", gate, StatusDown, address, ErrServer, "not ready")
	set(200)
	if _, err := gate.Policy("a").Allow(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	isHealth(t, "again", gate, StatusUp, address, nil, "")
	gone := freeAddr()
	for _, scheme := range []string{"http://user:secret@", "resp://user:secret@"} {
		isHealth(t, scheme, remoteOf(t, scheme+gone), StatusDown, gone, ErrNotCharged, "refused")
	}
}

func TestHealthOfAGateThatAsksAServerOverRESP(t *testing.T) {
	ctx, password := context.Background(), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, resp := startBoth(t, serverPolicies, "SLUICEGATE__RESP__PASSWORD_FILE="+password)
	isHealth(t, "ready", remoteOf(t, "resp://"+resp, Token("secret")), StatusUp, resp, nil, "")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for name, c := range map[string]struct {
		address string
		token   string
		err     *Error
		text    string
	}{
		"a wrong token": {resp, "no-secret-of-it", ErrServer, "WRONGPASS"}, "no token": {resp, "", ErrServer, "NOAUTH"},
		"away": {freeAddr(), "secret", ErrNotCharged, "refused"}, "hung": {silent.Addr().String(), "secret", ErrNotCharged, "no answer in time"},
	} {
		log, results := &lines{}, []string{}
		gate := remoteOf(t, "resp://"+c.address, Token(c.token), Deadline(100*time.Millisecond), log.logger(), Observer(func(_ context.Context, o Observation) {
			var known *Error
			if errors.As(o.Err, &known) {
				results = append(results, known.Name)
			}
		}))
		for range 5 {
			if _, err := gate.Policy("window").Allow(ctx, "k"); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", name, err)
			}
		}
		h := gate.Health(ctx)
		if h.Status != StatusDown || h.Address != c.address || h.Err == nil || !strings.Contains(h.Err.Error(), c.text) || strings.Contains(h.Err.Error(), "secret") {
			t.Errorf("%s: %+v", name, h)
		}
		if got := log.with("level=WARN", "no decision", "address="+c.address, c.text); len(got) != 1 || len(results) != 5 || results[0] != c.err.Name || len(log.with("secret")) > 0 {
			t.Errorf("%s: %v, %s", name, results, log)
		}
	}
}

func TestRequiredPoliciesAreLookedForAtTheStart(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	if err := direct(t, addr).Require(ctx, "a", "b"); !errors.Is(err, ErrNothingPublished) || strings.Count(err.Error(), "\n") > 0 {
		t.Error(err)
	}
	publishRecords(t, addr, 1, map[string]string{
		"a": recordOf(t, 1, PerHour(1)), "partner": recordWith(t, "partner", nil), "bad": "{",
	})
	gate := direct(t, addr)
	if err := gate.Require(ctx, "a"); err != nil {
		t.Error(err)
	}
	err := gate.Require(ctx, "a", "ordres", "bad", "partner")
	if !errors.Is(err, ErrUnknownPolicy) || !errors.Is(err, ErrUnreadablePolicy) || !errors.Is(err, ErrPolicyNotAvailable) ||
		!strings.Contains(err.Error(), "`ordres`") {
		t.Error(err)
	}
	if err := errors.Join(gate.Require(ctx), ByFunc(nil).Require(ctx, "a"), newGate(t, newManual(), Rules("a", PerHour(1))).Require(ctx, "a")); err != nil {
		t.Error(err)
	}
	if err := newGate(t, newManual()).Require(ctx, "a"); !errors.Is(err, ErrUnknownPolicy) {
		t.Error(err)
	}
	gone := freeAddr()
	if err := direct(t, gone).Require(ctx, "a", "b"); !errors.Is(err, ErrNotCharged) || !strings.Contains(err.Error(), gone) {
		t.Error(err)
	}
}

func TestRequiredPoliciesOfAServer(t *testing.T) {
	web, resp := startBoth(t, serverPolicies)
	ctx := context.Background()
	for _, gate := range []*Gate{remoteOf(t, "http://"+web), remoteOf(t, "resp://"+resp)} {
		if err := gate.Require(ctx, "window", "jobs", "queue"); err != nil {
			t.Error(err)
		}
		if err := gate.Require(ctx, "window", "ordres"); !errors.Is(err, ErrUnknownPolicy) || !strings.Contains(err.Error(), "ordres") {
			t.Error(err)
		}
		if d, err := gate.Policy("window").Shared().Peek(ctx, "", 1); err != nil || d.Remaining != 100 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// tlsOf has a Redis listen with TLS at another address.
func tlsOf(t *testing.T, to string) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	relay := &slowRelay{}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go relay.Pass(near, to)
		}
	}()
	return l.Addr().String()
}

func TestTLSThatIsExpectedAndMissingIsNamed(t *testing.T) {
	addr := redisAddr(t)
	for name, o := range map[string]*redis.Options{
		"without TLS, to a port that wants it": {Addr: tlsOf(t, addr)},
		"with TLS, to a port without it":       {Addr: addr, TLSConfig: &tls.Config{InsecureSkipVerify: true}},
		"with TLS, of an unknown authority":    {Addr: tlsOf(t, addr), TLSConfig: &tls.Config{}},
	} {
		o.ContextTimeoutEnabled = true
		client, log := redis.NewClient(o), &lines{}
		gate, err := Direct(client, log.logger())
		if err != nil {
			t.Fatal(err)
		}
		_, err = gate.Policy("a").Allow(context.Background(), "k")
		if !errors.Is(err, ErrNotCharged) || !strings.Contains(err.Error(), o.Addr) {
			t.Errorf("%s: %v", name, err)
		}
		isHealth(t, name, gate, StatusDown, o.Addr, ErrNotCharged, o.Addr)
		if got := log.with("policies cannot be looked for", o.Addr, "error="); len(got) != 1 {
			t.Errorf("%s: %s", name, log)
		}
		t.Logf("%s: %v", name, gate.Health(context.Background()).Err)
		gate.Close()
		client.Close()
	}
}
