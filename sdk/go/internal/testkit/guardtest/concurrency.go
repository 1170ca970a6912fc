package guardtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

// Wrap returns a handler that has `GET /orders` served by a handler, behind the middleware of a framework that limits how many requests
// are served at a time.
type Wrap func(limiter *sluicegate.Limiter, served http.Handler, options ...sghttp.Option) http.Handler

// Permits returns a gate with policies of so many permits, which last for a minute. Their names are what happens over the limit: those of
// the SDK's testdata/policies.yaml.
func Permits(t *testing.T, limit int64) *sgtest.Gate {
	t.Helper()
	set := testkit.Set(t, kernel.Spec{Code: kernel.CodeConcurrency, Limit: limit, WindowUS: time.Minute.Microseconds()})
	file := map[string]json.RawMessage{"#format": json.RawMessage("1")}
	for _, name := range []string{"reject", "shadow", "response", "tag", "divert"} {
		file[name] = json.RawMessage(testkit.RecordWith(t, name, testkit.RulesOf(set)))
	}
	records, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return sgtest.NewGate(t, sluicegate.Compiled(string(records)))
}

// Remaining returns how many permits of a key are free.
func Remaining(t *testing.T, limiter *sluicegate.Limiter, key string) int64 {
	t.Helper()
	d, err := limiter.Peek(context.Background(), key, 1)
	if err != nil {
		t.Error(err)
	}
	return d.Remaining
}

// held is a handler whose requests with a field X-Held are served until leave is closed. Others are at once.
type held struct{ entered, leave chan struct{} }

func newHeld() held { return held{make(chan struct{}), make(chan struct{})} }

func (h held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Held") != "" {
		h.entered <- struct{}{}
		<-h.leave
	}
	_, _ = io.WriteString(w, Served)
}

// CheckConcurrency has a middleware hold every claim about permits.
func CheckConcurrency(t *testing.T, wrap Wrap) {
	t.Run("answers", func(t *testing.T) { checkAnswers(t, wrap) })
	t.Run("at_most_the_limit_is_served_at_a_time", func(t *testing.T) { checkMost(t, wrap) })
	t.Run("a_permit_is_free_however_its_handler_ends", func(t *testing.T) { checkEnds(t, wrap) })
	t.Run("a_stream_holds_its_permit_until_its_end", func(t *testing.T) { checkStream(t, wrap) })
	t.Run("a_permit_is_held_while_a_handler_goes_on_after_its_client", func(t *testing.T) { checkGone(t, wrap) })
	t.Run("a_handler_gets_to_know_that_its_permit_is_lost", func(t *testing.T) { checkLost(t, wrap) })
}

// checkAnswers asks while another request is served.
func checkAnswers(t *testing.T, wrap Wrap) {
	policy := func(name string) *sluicegate.Limiter { return Permits(t, 1).Policy(name) }
	shared := []sghttp.Option{sghttp.Header("X-Tenant"), sghttp.Shared()}
	tag := []sghttp.Option{sghttp.OnOverflow(func(w http.ResponseWriter, _ *http.Request, d sluicegate.Decision) bool {
		_, _ = io.WriteString(w, "tag "+d.Overflow.Tag)
		return true
	})}
	for _, c := range []struct {
		name    string
		limiter *sluicegate.Limiter
		options []sghttp.Option
		second  string
		status  int
		header  map[string]string
		body    string
	}{
		{"one of another address passes", policy("reject"), nil, "203.0.113.8:1", 200,
			map[string]string{"RateLimit": `"concurrency";r=0;t=60`, "RateLimit-Policy": `"concurrency";q=1;qu="concurrent-requests"`, "Retry-After": ""}, Served},
		{"the second is refused with a problem", policy("reject"), nil, "203.0.113.7:1", 429,
			map[string]string{"RateLimit": `"concurrency";r=0;t=60`, "Retry-After": "60", "Content-Type": "application/problem+json"}, "quota-exceeded"},
		{"shadow passes", policy("shadow"), nil, "203.0.113.7:1", 200, map[string]string{"Retry-After": ""}, Served},
		{"the response of the policy is served", policy("response"), nil, "203.0.113.7:1", 203, map[string]string{"X-A": "b"}, "less"},
		{"a tag that nobody serves is refused", policy("tag"), nil, "203.0.113.7:1", 429, nil, "quota-exceeded"},
		{"a tag is served by the program", policy("tag"), tag, "203.0.113.7:1", 200, nil, "tag small"},
		{"a target that nobody serves is refused", policy("divert"), nil, "203.0.113.7:1", 429, nil, "quota-exceeded"},
		{"requests without a key share a budget by choice", policy("reject"), shared, "203.0.113.8:1", 429, nil, "quota-exceeded"},
		{"a request without its key is refused", policy("reject"), []sghttp.Option{sghttp.Header("X-Tenant")}, "203.0.113.7:1", 400, nil, "is missing"},
		{"a cost above the limit never passes", policy("reject"), []sghttp.Option{sghttp.Cost(func(*http.Request) int64 { return 2 })}, "203.0.113.8:1", 429,
			map[string]string{"Retry-After": ""}, "exceeds the limit of 1"},
		{"nobody decides in time", Answers(sluicegate.Decision{Mode: sluicegate.ModeShed, CanRetry: true, RetryAfter: 100 * time.Millisecond}, nil),
			nil, "203.0.113.7:1", 503, map[string]string{"Retry-After": "1", "RateLimit": ""}, "temporary-reduced-capacity"},
		{"nothing is published", Answers(sluicegate.Decision{}, sluicegate.ErrNothingPublished), nil, "203.0.113.7:1", 503, nil, "temporary-reduced-capacity"},
		{"an unknown policy is a mistake of the program", policy("orders"), nil, "203.0.113.7:1", 500, nil, "Internal Server Error"},
		{"rules without permits are a mistake of the program", Policy(t, "reject"), nil, "203.0.113.7:1", 500, nil, "Internal Server Error"},
		{"a gate in memory lets no request wait", policy("reject"), []sghttp.Option{sghttp.MaxWait(time.Second)}, "203.0.113.7:1", 500, nil, "Internal Server Error"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			served, first := newHeld(), make(chan struct{})
			h := wrap(c.limiter, served, c.options...)
			go func() {
				defer close(first)
				r := httptest.NewRequest("GET", "/orders", nil)
				r.RemoteAddr = "203.0.113.7:1"
				r.Header.Set("X-Held", "1")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			select {
			case <-served.entered:
			case <-first:
			}
			got := get(h, c.second, "")
			close(served.leave)
			<-first
			if got.status != c.status || !strings.Contains(got.body, c.body) || c.status != 200 && strings.Contains(got.body, Served) {
				t.Errorf("%d %s, expected %d and %s", got.status, got.body, c.status, c.body)
			}
			for name, want := range c.header {
				if value := got.header.Get(name); value != want {
					t.Errorf("%s: %s, expected %s", name, value, want)
				}
			}
		})
	}
}

func checkMost(t *testing.T, wrap Wrap) {
	const clients, limit = 50, 5
	reject := Permits(t, limit).Policy("reject")
	var now, most, refused atomic.Int64
	allDecided := make(chan struct{})
	server := httptest.NewServer(wrap(reject, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		<-allDecided
		now.Add(-1)
	})))
	defer server.Close()
	testkit.Together(clients, func(int) {
		r, err := http.Get(server.URL + "/orders")
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Body.Close()
		if r.StatusCode == http.StatusTooManyRequests && refused.Add(1) == clients-limit {
			close(allDecided)
		}
	})
	if most.Load() > limit || refused.Load() != clients-limit || Remaining(t, reject, "127.0.0.1") != limit {
		t.Errorf("%d at a time, %d refused, %d remain", most.Load(), refused.Load(), Remaining(t, reject, "127.0.0.1"))
	}
}

// serve starts a server that logs nothing.
func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL + "/orders"
}

func checkEnds(t *testing.T, wrap Wrap) {
	for name, end := range map[string]func(){
		"return": func() {}, "panic": func() { panic("no") }, "abort": func() { panic(http.ErrAbortHandler) }, "goexit": runtime.Goexit,
	} {
		reject := Permits(t, 1).Policy("reject")
		var during int64
		url := serve(t, wrap(reject, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			during = Remaining(t, reject, "127.0.0.1")
			end()
		})))
		if r, err := http.Get(url); err == nil {
			r.Body.Close()
		}
		if after := Remaining(t, reject, "127.0.0.1"); during != 0 || after != 1 {
			t.Errorf("%s: %d remain in the handler, %d afterwards", name, during, after)
		}
	}
}

func checkStream(t *testing.T, wrap Wrap) {
	reject, more := Permits(t, 1).Policy("reject"), make(chan struct{})
	url := serve(t, wrap(reject, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range more {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	})))
	go func() { more <- struct{}{} }()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for range 3 {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil || Remaining(t, reject, "127.0.0.1") != 0 {
			t.Fatalf("%d remain, %v", Remaining(t, reject, "127.0.0.1"), err)
		}
		more <- struct{}{}
	}
	close(more)
	if _, err := io.Copy(io.Discard, r.Body); err != nil || Remaining(t, reject, "127.0.0.1") != 1 {
		t.Errorf("%d remain, %v", Remaining(t, reject, "127.0.0.1"), err)
	}
}

// awaitSleepers waits until so many goroutines wait for the clock of a gate.
func awaitSleepers(t *testing.T, gate *sgtest.Gate, n int) {
	t.Helper()
	testkit.Eventually(t, "nothing is renewed", func() bool { return gate.Clock.Sleepers() == n })
}

func checkGone(t *testing.T, wrap Wrap) {
	gate := Permits(t, 1)
	reject, gone, leave := gate.Policy("reject"), make(chan error), make(chan struct{})
	url := serve(t, wrap(reject, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		gone <- nil
		<-r.Context().Done()
		gone <- context.Cause(r.Context())
		<-leave
	})))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if r, err := http.DefaultClient.Do(request); err == nil {
			r.Body.Close()
		}
	}()
	<-gone
	cancel()
	if cause := <-gone; !errors.Is(cause, context.Canceled) {
		t.Error(cause)
	}
	for range 9 { // three times the ttl
		awaitSleepers(t, gate, 1)
		gate.Clock.Advance(20 * time.Second)
	}
	if remaining := Remaining(t, reject, "127.0.0.1"); remaining != 0 {
		t.Errorf("%d remain", remaining)
	}
	close(leave)
	testkit.Eventually(t, "the permit is held still", func() bool { return Remaining(t, reject, "127.0.0.1") == 1 })
	awaitSleepers(t, gate, 0)
}

func checkLost(t *testing.T, wrap Wrap) {
	gate := Permits(t, 1)
	reject, cause := gate.Policy("reject"), make(chan error, 1)
	ended := make(chan struct{})
	h := wrap(reject, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	}))
	go func() {
		defer close(ended)
		get(h, "203.0.113.7:1", "")
	}()
	awaitSleepers(t, gate, 1)
	if _, err := reject.Reset(context.Background(), "203.0.113.7"); err != nil {
		t.Fatal(err)
	}
	gate.Clock.Advance(20 * time.Second)
	if err := <-cause; err != sluicegate.ErrNotHeld {
		t.Error(err)
	}
	<-ended
}
