// Package guardtest has the claims that a middleware of any framework must hold, for the tests of each.
package guardtest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

// Served is what a handler answers that is guarded, with status 200.
const Served = "served"

// Guard returns a handler that answers Served to `GET /orders`, behind the middleware of a framework.
type Guard func(*sluicegate.Limiter, ...sghttp.Option) http.Handler

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(h http.Handler, remote, forwarded string) answer {
	r, w := httptest.NewRequest("GET", "/orders", nil), httptest.NewRecorder()
	r.RemoteAddr = remote
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
		r.Header.Set("X-Real-Ip", forwarded)
		r.Header.Set("Forwarded", "for="+forwarded)
	}
	h.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	return answer{w.Code, w.Result().Header, string(body)}
}

// Gone returns a limiter whose Redis does not answer, and that refuses then.
func Gone(t *testing.T) *sluicegate.Limiter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), ContextTimeoutEnabled: true, DialerRetries: 1})
	gate, err := sluicegate.Direct(client, sluicegate.Deadline(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gate.Close(); _ = client.Close() })
	limiter, err := gate.Limit("orders", sluicegate.PerHour(1))
	if err != nil {
		t.Fatal(err)
	}
	if limiter, err = limiter.OnStoreFailure(sluicegate.FailDeny); err != nil {
		t.Fatal(err)
	}
	return limiter
}

// Policy returns the limiter of a policy of the SDK's testdata/policies.yaml, for the tests of a folder beside that. It has one
// permit each ten seconds; its name is what happens over the limit.
func Policy(t *testing.T, name string) *sluicegate.Limiter {
	t.Helper()
	return Policies(t).Policy(name)
}

// Policies returns a gate of all these policies.
func Policies(t *testing.T) *sgtest.Gate {
	t.Helper()
	records, err := os.ReadFile("../testdata/policies.json")
	if err != nil {
		t.Fatal(err)
	}
	return sgtest.NewGate(t, sluicegate.Compiled(string(records)))
}

// Answers returns a limiter that answers every request with the same.
func Answers(d sluicegate.Decision, err error) *sluicegate.Limiter {
	return sluicegate.ByFunc(func(context.Context, sluicegate.Request) (sluicegate.Decision, error) { return d, err }).Policy("orders")
}

// Check has a middleware hold every claim.
func Check(t *testing.T, guard Guard) {
	policy := func(name string) *sluicegate.Limiter { return Policy(t, name) }
	const client, other = "203.0.113.7:1", "203.0.113.8:1"
	for _, c := range []struct {
		name      string
		limiter   *sluicegate.Limiter
		options   []sghttp.Option
		second    string // of which address the second request is
		forwarded string // and the client that it names
		status    int
		header    map[string]string // "": the field is not there
		body      string            // a part of it
	}{
		{"the first of an address passes", policy("reject"), nil, other, "", 200,
			map[string]string{"RateLimit": `"token_bucket";r=0;t=10`, "RateLimit-Policy": `"token_bucket";q=1;w=10`, "Retry-After": ""}, Served},
		{"the second is refused with a problem", policy("reject"), nil, client, "", 429,
			map[string]string{"RateLimit": `"token_bucket";r=0;t=10`, "Retry-After": "10", "Content-Type": "application/problem+json"}, "quota-exceeded"},
		{"nobody decides and the policy denies", Gone(t), nil, client, "", 503,
			map[string]string{"Retry-After": "1", "RateLimit": "", "Content-Type": "application/problem+json"}, "temporary-reduced-capacity"},
		{"nobody decides in time", Answers(sluicegate.Decision{Mode: sluicegate.ModeShed, CanRetry: true, RetryAfter: 100 * time.Millisecond}, nil),
			nil, client, "", 503, map[string]string{"Retry-After": "1", "RateLimit": ""}, "temporary-reduced-capacity"},
		{"nothing is published", Answers(sluicegate.Decision{}, sluicegate.ErrNothingPublished), nil, client, "", 503,
			map[string]string{"Retry-After": "1", "Content-Type": "application/problem+json"}, "temporary-reduced-capacity"},
		{"shadow passes", policy("shadow"), nil, client, "", 200, map[string]string{"Retry-After": ""}, Served},
		{"the response of the policy is served", policy("response"),
			nil, client, "", 203, map[string]string{"X-A": "b", "Retry-After": "10"}, "less"},
		{"a tag that nobody serves is refused", policy("tag"), nil, client, "", 429, nil, "quota-exceeded"},
		{"a tag is served by the program", policy("tag"),
			[]sghttp.Option{sghttp.OnOverflow(func(w http.ResponseWriter, _ *http.Request, d sluicegate.Decision) bool {
				_, _ = io.WriteString(w, "tag "+d.Overflow.Tag)
				return true
			})}, client, "", 200, nil, "tag small"},
		{"a target that nobody serves is refused", policy("divert"), nil, client, "", 429, nil, "quota-exceeded"},
		{"X-Forwarded-For of an untrusted address has no effect", policy("reject"), nil, client, "198.51.100.1", 429, nil, "quota-exceeded"},
		{"X-Forwarded-For of a trusted proxy is used", policy("reject"), []sghttp.Option{sghttp.TrustedProxies("203.0.113.7")},
			client, "198.51.100.1", 200, nil, Served},
		{"an address with a port is the address", policy("reject"), []sghttp.Option{sghttp.TrustedProxies("203.0.113.7")},
			client, "198.51.100.1:4711", 200, nil, Served},
		{"another field of a trusted proxy is used", policy("reject"),
			[]sghttp.Option{sghttp.TrustedProxies("203.0.113.7"), sghttp.ProxyHeader("X-Real-IP")}, client, "198.51.100.1", 200, nil, Served},
		{"another field of an untrusted address has no effect", policy("reject"), []sghttp.Option{sghttp.ProxyHeader("X-Real-IP")},
			client, "198.51.100.1", 429, nil, "quota-exceeded"},
		{"a request without its key is refused", policy("reject"), []sghttp.Option{sghttp.Header("X-Tenant")}, client, "", 400,
			map[string]string{"Content-Type": "application/problem+json"}, "Bad Request"},
		{"requests without a key share a budget by choice", policy("reject"), []sghttp.Option{sghttp.Header("X-Tenant"), sghttp.Shared()},
			other, "", 429, nil, "quota-exceeded"},
		{"an unknown policy is a mistake of the program", sgtest.NewGate(t).Policy("orders"), nil, client, "", 500,
			map[string]string{"Content-Type": "application/problem+json"}, "Internal Server Error"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			h := guard(c.limiter, c.options...)
			get(h, client, "")
			got := get(h, c.second, c.forwarded)
			if got.status != c.status || !strings.Contains(got.body, c.body) {
				t.Errorf("%d %s, expected %d and %s", got.status, got.body, c.status, c.body)
			}
			if c.status != 200 && strings.Contains(got.body, Served) {
				t.Error("the handler ran")
			}
			for name, want := range c.header {
				if value := got.header.Get(name); value != want {
					t.Errorf("%s: %s, expected %s", name, value, want)
				}
			}
			if got.header.Get("Content-Type") != "application/problem+json" {
				return
			}
			var problem struct {
				Type   string
				Title  string
				Status int
			}
			if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Status != c.status || problem.Type == "" || problem.Title == "" {
				t.Errorf("%s: %v", got.body, err)
			}
		})
	}
}
