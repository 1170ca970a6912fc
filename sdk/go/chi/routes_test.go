package sgchi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func routes(gate *sluicegate.Gate) http.Handler {
	r := chi.NewRouter()
	r.Get("/health", ok) // has no limit
	r.Group(func(r chi.Router) {
		r.Use(sghttp.Middleware(gate.Policy("clients"))) // by address
		r.Get("/orders", ok)
		r.With(sghttp.Middleware(gate.Policy("exports"), sghttp.Header("X-Tenant"))).Get("/exports", ok) // by both
	})
	r.Route("/tenants/{tenant}", func(r chi.Router) {
		r.Use(sghttp.Middleware(gate.Policy("tenants"), sghttp.Key(tenant)))
		r.Get("/orders", ok)
	})
	return r
}

// tenant returns the parameter of the path. chi matches an unusual path as it was sent, and `%61cme` is to have the budget of `acme`.
func tenant(r *http.Request) string {
	name := chi.URLParam(r, "tenant")
	if r.URL.RawPath != "" {
		name, _ = url.PathUnescape(name) // net/http has read the whole path before
	}
	return name
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

func newGate(t *testing.T) *sluicegate.Gate {
	return sgtest.NewGate(t, sluicegate.Rules("clients", sluicegate.PerMinute(2)), sluicegate.Rules("exports", sluicegate.PerMinute(1)),
		sluicegate.Rules("tenants", sluicegate.PerHour(20))).Gate
}

func get(h http.Handler, path, header string) *http.Response {
	r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
	r.Header.Set("X-Tenant", header)
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestGroupsAndSingleRoutesOfChiHaveLimits(t *testing.T) {
	h := routes(newGate(t))
	for _, c := range []struct {
		path, tenant string
		status       int
		policy       string // the field of the last limit that was asked
	}{
		{"/health", "", 200, ""},
		{"/exports", "acme", 200, `"token_bucket";q=1;w=60`},
		{"/exports", "acme", 429, `"token_bucket";q=1;w=60`},
		{"/orders", "", 429, `"token_bucket";q=2;w=60`}, // the address has asked twice
		{"/health", "", 200, ""},
		{"/tenants/acme/orders", "", 200, `"token_bucket";q=20;w=3600`},
		{"/none", "", 404, ""},
	} {
		got := get(h, c.path, c.tenant)
		if got.StatusCode != c.status || got.Header.Get("RateLimit-Policy") != c.policy {
			t.Errorf("%+v: %d, %v", c, got.StatusCode, got.Header)
		}
		if refused := c.status == 429; (got.Header.Get("Retry-After") != "") != refused || refused && got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%+v: %v", c, got.Header)
		}
	}
}

func TestAKeyFromAParameterOfThePathIsTheSameHoweverItIsSent(t *testing.T) {
	server := httptest.NewServer(routes(newGate(t)))
	defer server.Close()
	ways := []string{"acme", "%61cme", "a%63m%65"}
	var passed, refused atomic.Int32
	testkit.Together(50, func(i int) {
		r, err := http.Get(server.URL + "/tenants/" + ways[i%len(ways)] + "/orders")
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Body.Close()
		switch r.StatusCode {
		case 200:
			passed.Add(1)
		case 429:
			refused.Add(1)
		default:
			t.Error(r.Status)
		}
	})
	if passed.Load() != 20 || refused.Load() != 30 {
		t.Errorf("%d passed, %d were refused", passed.Load(), refused.Load())
	}
	for _, path := range []string{"/tenants/%2f/orders", "/tenants/100%25/orders"} {
		if got := get(routes(newGate(t)), path, ""); got.StatusCode != 200 {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

func TestParametersOfThePathAreThereWithTheRouteAndNotBeforeIt(t *testing.T) {
	guard := sghttp.Middleware(newGate(t).Policy("tenants"), sghttp.Key(tenant))
	before, with, group := chi.NewRouter(), chi.NewRouter(), chi.NewRouter()
	before.Use(guard)
	before.Get("/tenants/{tenant}", ok)
	with.With(guard).Get("/tenants/{tenant}", ok)
	group.Group(func(r chi.Router) {
		r.Use(guard)
		r.Get("/tenants/{tenant}", ok)
	})
	for h, status := range map[http.Handler]int{before: 400, with: 200, group: 200} {
		if got := get(h, "/tenants/acme", ""); got.StatusCode != status {
			t.Errorf("%d, expected %d", got.StatusCode, status)
		}
	}
}

func TestThePagesHaveTheseRoutes(t *testing.T) {
	source, err := os.ReadFile("routes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), ")\n\n")
	code, _, _ = strings.Cut(code, "\n\nfunc ok(")
	for _, page := range []string{"../README.md", "../README.zh.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+code+"\n```\n") {
			t.Errorf("%s lacks:\n%s", page, code)
		}
	}
}
