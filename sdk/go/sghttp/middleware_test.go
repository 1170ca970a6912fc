package sghttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func get(h http.Handler, remote string, fields ...string) *http.Response {
	r := httptest.NewRequest("GET", "/orders", nil)
	r.RemoteAddr = remote
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestARequestPassesAndTheNextIsRefused(t *testing.T) {
	gate := guardtest.Policies(t)
	h := sghttp.Middleware(gate.Policy("reject"), sghttp.Headers(sluicegate.RateLimitHeaders, sluicegate.XRateLimitHeaders))(hello)
	first := get(h, "203.0.113.7:1")
	if first.StatusCode != 200 || first.Header.Get("RateLimit") != `"token_bucket";r=0;t=10` ||
		first.Header.Get("RateLimit-Policy") != `"token_bucket";q=1;w=10` || first.Header.Get("Retry-After") != "" {
		t.Fatal(first.StatusCode, first.Header)
	}
	second := get(h, "203.0.113.7:2")
	body, _ := io.ReadAll(second.Body)
	var problem struct {
		Type, Detail string
		Status       int
	}
	if err := json.Unmarshal(body, &problem); err != nil {
		t.Fatal(err)
	}
	if second.StatusCode != 429 || second.Header.Get("Retry-After") != "10" || problem.Status != 429 ||
		second.Header.Get("Content-Type") != "application/problem+json" || problem.Detail != "retry in 10 s" ||
		second.Header.Get("X-RateLimit-Reset") != "10" || !strings.HasSuffix(problem.Type, "#quota-exceeded") {
		t.Fatal(second.StatusCode, second.Header, string(body))
	}
	gate.Clock.Advance(10 * time.Second)
	if third := get(h, "203.0.113.7:3"); third.StatusCode != 200 {
		t.Fatal(third.StatusCode)
	}
}

func TestAnAddressThatIsNotTrustedDoesNotChangeTheKey(t *testing.T) {
	for _, c := range []struct {
		remote    string
		forwarded []string
		key       string
	}{
		{"203.0.113.7:1", nil, "203.0.113.7"},
		{"203.0.113.7:1", []string{"198.51.100.1"}, "203.0.113.7"},
		{"10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"192.0.2.66, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"192.0.2.66", "198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"nonsense"}, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", []string{"2001:DB8:0:1:aaaa::1"}, "2001:db8:0:1::/64"},
		{"[::ffff:203.0.113.7]:1", nil, "203.0.113.7"},
		{"[64:ff9b::cb00:7107]:1", nil, "203.0.113.7"},
		{"[::1]:1", nil, "::/64"},
		{"10.0.0.1:1", []string{strings.Repeat(",", 100_000) + "198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{strings.Repeat("10.0.0.2,", 64) + "10.0.0.3"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{"198.51.100.1:80"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"198.51.100.1:80, 10.0.0.2:443"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"[2001:db8:0:1:aaaa::1]:80"}, "2001:db8:0:1::/64"},
		{"10.0.0.1:1", []string{"[2001:db8:0:1:aaaa::1]"}, "2001:db8:0:1::/64"},
		{"10.0.0.1:1", []string{"[::ffff:198.51.100.1]:80"}, "198.51.100.1"},
		{"10.0.0.1:1", []string{"198.51.100.1:65536"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"198.51.100.1:99999"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"198.51.100.1, 192.0.2.1:99999, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:1", []string{"198.51.100.1:"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"[198.51.100.1]"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1"},
		{"203.0.113.7:1", []string{"198.51.100.1:80"}, "203.0.113.7"},
		{"@", nil, ""},
	} {
		seen := ""
		var r *http.Request
		mux := http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) { r = in })
		fields := []string{}
		for _, f := range c.forwarded {
			fields = append(fields, "X-Forwarded-For", f)
		}
		get(mux, c.remote, fields...)
		seen = sghttp.RemoteIP(r, sghttp.Prefixes("10.0.0.0/8")...)
		if seen != c.key {
			t.Errorf("%s of %v: %s, expected %s", c.remote, c.forwarded, seen, c.key)
		}
	}
}

func TestKeysOfSeveralAttributesAreJoinedAsGatewaysDo(t *testing.T) {
	for want, values := range map[string][]string{
		`/a|b`: {`/a|b`}, `203.0.113.7|/a\|b`: {"203.0.113.7", "/a|b"}, `a\\b|GET`: {`a\b`, "GET"}, `|GET`: {"", "GET"}, `|`: {"", ""},
		"sha256:96bba144f512f610a1026c2595a697c8d53e2b72a7f40b2d59b37bf9aaaa9c90": {"/" + strings.Repeat("x", 1024)},
	} {
		if got := sghttp.JoinKey(values...); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

func TestOverTheLimit(t *testing.T) {
	second := func(policy string, options ...sghttp.Option) (*http.Response, string) {
		h := sghttp.Middleware(guardtest.Policy(t, policy), options...)(hello)
		get(h, "203.0.113.7:1")
		r := get(h, "203.0.113.7:1")
		body, _ := io.ReadAll(r.Body)
		return r, string(body)
	}
	if r, body := second("shadow"); r.StatusCode != 200 || body != "hello" {
		t.Error(r.StatusCode, body)
	}
	if r, body := second("response"); r.StatusCode != 203 ||
		body != "less" || r.Header.Get("X-A") != "b" || r.Header.Get("Retry-After") != "10" {
		t.Error(r.StatusCode, body)
	}
	if r, _ := second("tag"); r.StatusCode != 429 {
		t.Error(r.StatusCode)
	}
	serve := sghttp.OnOverflow(func(w http.ResponseWriter, _ *http.Request, d sluicegate.Decision) bool {
		_, _ = io.WriteString(w, d.Overflow.Tag)
		return true
	})
	if r, body := second("tag", serve); r.StatusCode != 200 || body != "small" {
		t.Error(r.StatusCode, body)
	}
}

func TestWithoutADecision(t *testing.T) {
	gate := guardtest.Policies(t)
	if r := get(sghttp.Middleware(gate.Policy("none"))(hello), "203.0.113.7:1"); r.StatusCode != 500 {
		t.Error(r.StatusCode)
	}
	remote, err := sluicegate.Remote("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	unavailable := get(sghttp.Middleware(remote.Policy("orders"))(hello), "203.0.113.7:1")
	body, _ := io.ReadAll(unavailable.Body)
	if unavailable.StatusCode != 503 || unavailable.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "#temporary-reduced-capacity") {
		t.Error(unavailable.StatusCode, unavailable.Header, string(body))
	}
	denied := sluicegate.Decision{Mode: sluicegate.ModeDeny, CanRetry: true, RetryAfter: time.Second, Rule: "r"}
	if status, body := denied.Problem(); status != 503 || !strings.Contains(string(body), "temporary-reduced-capacity") {
		t.Error(status, string(body))
	}
}

func TestKeysAndCosts(t *testing.T) {
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.FixedWindow(5, time.Minute)))
	h := sghttp.Middleware(gate.Policy("orders"), sghttp.Header("X-Tenant"), sghttp.Shared(),
		sghttp.Cost(func(*http.Request) int64 { return 3 }))(hello)
	for _, tenant := range []string{"a", "b", ""} {
		fields := []string{"X-Tenant", tenant}
		if tenant == "" {
			fields = nil
		}
		for _, want := range []int{200, 429} {
			if r := get(h, "203.0.113.7:1", fields...); r.StatusCode != want {
				t.Errorf("%s: %d", tenant, r.StatusCode)
			}
		}
	}
}

func TestTheFieldOfAProxyIsBelievedFromTrustedProxiesOnly(t *testing.T) {
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)))
	h := sghttp.Middleware(gate.Policy("orders"), sghttp.TrustedProxies("10.0.0.0/8"), sghttp.ProxyHeader("CF-Connecting-IP"))(hello)
	for i, c := range []struct {
		remote, field, value string
		status               int
	}{
		{"10.0.0.1:1", "CF-Connecting-IP", "198.51.100.1", 200},
		{"10.0.0.2:1", "CF-Connecting-IP", "198.51.100.1:80", 429}, // the same client
		{"10.0.0.1:1", "CF-Connecting-IP", "198.51.100.2", 200},
		{"203.0.113.7:1", "CF-Connecting-IP", "198.51.100.3", 200},
		{"203.0.113.7:1", "CF-Connecting-IP", "198.51.100.4", 429}, // forged
		{"10.0.0.3:1", "X-Forwarded-For", "198.51.100.5", 200},
		{"10.0.0.3:1", "X-Forwarded-For", "198.51.100.6", 429}, // not the field
	} {
		if r := get(h, c.remote, c.field, c.value); r.StatusCode != c.status {
			t.Errorf("%d: %d, expected %d", i, r.StatusCode, c.status)
		}
	}
}

func TestARequestWithoutItsKeyIsRefusedAndChargesNothing(t *testing.T) {
	var observed []string
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)), sluicegate.Observer(func(_ context.Context, o sluicegate.Observation) {
		var err *sluicegate.Error
		if errors.As(o.Err, &err) {
			observed = append(observed, o.Policy+" "+o.Verb+" "+err.Name)
		}
	}))
	orders := gate.Policy("orders")
	for detail, option := range map[string]sghttp.Option{
		"header `X-Tenant`: is missing": sghttp.Header("X-Tenant"), "key: is missing": sghttp.Key(func(*http.Request) string { return "" }),
	} {
		h := sghttp.Middleware(orders, option)(hello)
		for range 3 {
			r := get(h, "203.0.113.7:1")
			body, _ := io.ReadAll(r.Body)
			if r.StatusCode != 400 || r.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(string(body), "orders") || !strings.Contains(string(body), `"detail":"`+detail+`"`) {
				t.Errorf("%s: %d %s", detail, r.StatusCode, body)
			}
		}
	}
	if len(observed) != 6 || observed[0] != "orders check key_empty" {
		t.Error(observed)
	}
	var seen error
	own := sghttp.OnError(func(w http.ResponseWriter, _ *http.Request, err error) { seen = err; w.WriteHeader(418) })
	if r := get(sghttp.Middleware(orders, sghttp.Header("X-Tenant"), own)(hello), "203.0.113.7:1"); r.StatusCode != 418 || !errors.Is(seen, sluicegate.ErrKeyEmpty) {
		t.Error(r.StatusCode, seen)
	}
	// A listener of a socket has no addresses of clients.
	r := get(sghttp.Middleware(orders)(hello), "@")
	if body, _ := io.ReadAll(r.Body); r.StatusCode != 400 || !strings.Contains(string(body), `"detail":"address: is missing"`) {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	shared := sghttp.Middleware(orders, sghttp.Header("X-Tenant"), sghttp.Shared())(hello)
	for _, want := range []int{200, 429} {
		if r := get(shared, "203.0.113.7:1"); r.StatusCode != want {
			t.Errorf("shared: %d, expected %d", r.StatusCode, want)
		}
	}
}

func TestHundredsOfFieldsAreBounded(t *testing.T) {
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)))
	var fields []string
	for i := range 200 {
		fields = append(fields, "X-Tenant", fmt.Sprint("t", i), "X-Forwarded-For", fmt.Sprint("198.51.100.", i), fmt.Sprint("X-Name-", i), "v")
	}
	byTenant := sghttp.Middleware(gate.Policy("orders"), sghttp.Header("X-Tenant"))(hello)
	if r := get(byTenant, "203.0.113.7:1", fields...); r.StatusCode != 400 {
		t.Error(r.StatusCode)
	}
	byAddress := sghttp.Middleware(gate.Policy("orders"))(hello)
	for _, want := range []int{200, 429} {
		if r := get(byAddress, "203.0.113.7:1", fields...); r.StatusCode != want {
			t.Errorf("%d, expected %d", r.StatusCode, want)
		}
	}
}

// A proxy that adds the true tenant behind the field of the client would be passed by.
func TestTwoFieldsOfTheKeyAreRefusedAndChargeNothing(t *testing.T) {
	h := sghttp.Middleware(guardtest.Policy(t, "reject"), sghttp.Header("X-Tenant"))(hello)
	for range 3 {
		twice := get(h, "203.0.113.7:1", "X-Tenant", "forged", "x-tenant", "real")
		if body, _ := io.ReadAll(twice.Body); twice.StatusCode != 400 || !strings.Contains(string(body), "\"detail\":\"header `X-Tenant`: is given more than once\"") {
			t.Fatalf("%d %s", twice.StatusCode, body)
		}
	}
	for _, tenant := range []string{"forged", "real", "\xff"} {
		if one := get(h, "203.0.113.7:1", "X-Tenant", tenant); one.StatusCode != 200 {
			t.Fatalf("%q: %d", tenant, one.StatusCode)
		}
	}
	if same := get(h, "203.0.113.7:1", "X-Tenant", "\ufffd"); same.StatusCode != 429 {
		t.Fatalf("bytes that are not UTF-8 are U+FFFD: %d", same.StatusCode)
	}
}

// Any client can leave its key out, so an operator who did not ask for details sees nothing of it.
func TestARequestWithoutItsKeyIsLoggedForDebuggingOnly(t *testing.T) {
	for want, options := range map[string][]sghttp.Option{
		"request without header X-User is not decided; sghttp.Shared() would let such requests share a budget": {sghttp.Header("X-User")},
		"request without a key is not decided; sghttp.Shared() would let such requests share a budget":         {sghttp.Key(func(*http.Request) string { return "" })},
		"request without an address is not decided; sghttp.Shared() would let such requests share a budget":    nil,
	} {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
			log := &strings.Builder{}
			gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)),
				sluicegate.Logger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))))
			h := sghttp.Middleware(gate.Policy("orders"), options...)(hello)
			for range 3 {
				if r := get(h, "@"); r.StatusCode != 400 {
					t.Errorf("%s: %d", want, r.StatusCode)
				}
			}
			lines, line := 0, "level=DEBUG msg=\""+want+"\" policy=orders\n"
			if level == slog.LevelDebug {
				lines = 1
			}
			if strings.Count(log.String(), line) != lines || strings.Count(log.String(), "\n") != lines {
				t.Errorf("%v: %s, expected %d of %s", level, log, lines, line)
			}
		}
	}
}

func TestATrustedProxyThatIsNoNetworkIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"proxy.local":            "sghttp: `proxy.local` is not a network; expected one such as `10.0.0.0/8`, or an address",
		"10.0.0.0/33":            "sghttp: `10.0.0.0/33` is not a network; expected one such as `10.0.0.0/8`, or an address",
		"":                       "sghttp: `` is not a network; expected one such as `10.0.0.0/8`, or an address",
		strings.Repeat("x", 100): "sghttp: `" + strings.Repeat("x", 60) + "…` is not a network; expected one such as `10.0.0.0/8`, or an address",
	} {
		for name, call := range map[string]func(){
			"TrustedProxies": func() { sghttp.TrustedProxies("10.0.0.0/8", text) }, "Prefixes": func() { sghttp.Prefixes(text) },
		} {
			func() {
				defer func() {
					if got := recover(); got != want {
						t.Errorf("%s: %v, expected %s", name, got, want)
					}
				}()
				call()
			}()
		}
	}
	sghttp.TrustedProxies("10.0.0.1", "10.1.2.3/8", "2001:db8::1", "2001:db8::/32")
}
