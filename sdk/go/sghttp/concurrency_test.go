package sghttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestPermitsOfNetHTTPAreHeldAsAllHold(t *testing.T) {
	guardtest.CheckConcurrency(t, func(limiter *sluicegate.Limiter, served http.Handler, options ...sghttp.Option) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /orders", sghttp.Concurrency(limiter, options...)(served))
		return mux
	})
}

// The handler runs on when a timeout has answered in its place, and so its permit is held.
func TestAHandlerThatTimedOutHoldsItsPermitUntilItReturns(t *testing.T) {
	reject, leave := guardtest.Permits(t, 1).Policy("reject"), make(chan struct{})
	// Its time is over as soon as the handler has begun.
	ctx, timeOut := context.WithCancel(context.Background())
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		timeOut()
		<-leave
	})
	h := http.TimeoutHandler(sghttp.Concurrency(reject)(slow), time.Hour, "too late")
	r := httptest.NewRequest("GET", "/orders", nil).WithContext(ctx)
	r.RemoteAddr = "203.0.113.7:1"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	if remaining := guardtest.Remaining(t, reject, "203.0.113.7"); remaining != 0 {
		t.Errorf("%d remain", remaining)
	}
	close(leave)
	testkit.Eventually(t, "the permit is held still", func() bool { return guardtest.Remaining(t, reject, "203.0.113.7") == 1 })
}

// limited are the policies of a server for these tests.
const limited = `{"policies":[{"name":"pool","rules":[{"concurrency":{"limit":5,"ttl":"1h","queue":1000}}]}]}`

// gates starts a server, and returns a gate of each wire.
func gates(t *testing.T) map[string]*sluicegate.Gate {
	resp := testkit.FreeAddr()
	web := testkit.StartServer(t, testkit.RedisAddr(t), limited, "SLUICEGATE__RESP__LISTEN="+resp)
	out := map[string]*sluicegate.Gate{}
	for _, address := range []string{"http://" + web, "resp://" + resp} {
		gate, err := sluicegate.Remote(address, sluicegate.Deadline(testkit.Patient))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = gate.Close() })
		out[address] = gate
	}
	return out
}

func TestFiftyClientsAreServedFiveAtATimeByTheirTurns(t *testing.T) {
	const clients, limit = 50, 5
	for wire, gate := range gates(t) {
		pool := gate.Policy("pool")
		var entered, now, most atomic.Int64
		var complete [clients / limit]chan struct{} // five are served
		for i := range complete {
			complete[i] = make(chan struct{})
		}
		served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			most.Store(max(most.Load(), now.Add(1)))
			place := entered.Add(1) - 1
			if place%limit == limit-1 {
				close(complete[place/limit])
			}
			<-complete[place/limit]
			now.Add(-1)
		})
		server := httptest.NewServer(sghttp.Concurrency(pool, sghttp.MaxWait(time.Hour))(served))
		testkit.Together(clients, func(int) {
			r, err := http.Get(server.URL)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Body.Close(); r.StatusCode != http.StatusOK {
				t.Error(r.StatusCode)
			}
		})
		server.Close()
		if remaining := guardtest.Remaining(t, pool, "127.0.0.1"); most.Load() > limit || entered.Load() != clients || remaining != limit {
			t.Errorf("%s: %d served, %d at a time, %d remain", wire, entered.Load(), most.Load(), remaining)
		}
	}
}

func TestAClientThatGoesAwayWhileItWaitsLeavesNothing(t *testing.T) {
	for wire, gate := range gates(t) {
		pool, ctx := gate.Policy("pool"), context.Background()
		var held []*sluicegate.Permit
		for range 5 {
			permit, err := pool.Acquire(ctx, "203.0.113.7")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, permit)
		}
		h := sghttp.Concurrency(pool, sghttp.MaxWait(time.Hour))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
		gone, cancel := context.WithCancel(ctx)
		cancel()
		testkit.Together(20, func(i int) {
			until := gone
			if i%2 == 0 {
				soon, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
				defer cancel()
				until = soon
			}
			r := httptest.NewRequest("GET", "/orders", nil).WithContext(until)
			r.RemoteAddr = "203.0.113.7:1"
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
				t.Error(w.Code)
			}
		})
		for _, permit := range held {
			if err := permit.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		testkit.Eventually(t, wire+": a permit is held still", func() bool { return guardtest.Remaining(t, pool, "203.0.113.7") == 5 })
	}
}

func TestTenThousandRequestsLeaveNothingHeld(t *testing.T) {
	for wire, gate := range gates(t) {
		pool := gate.Policy("pool")
		h := sghttp.Concurrency(pool)(hello)
		var served atomic.Int64
		testkit.Together(5, func(int) {
			for range 1000 {
				if r := get(h, "203.0.113.7:1"); r.StatusCode == http.StatusOK {
					served.Add(1)
				}
			}
		})
		// Each of the five has one request at a time, whose permit is free when it has its answer.
		if remaining := guardtest.Remaining(t, pool, "203.0.113.7"); served.Load() != 5000 || remaining != 5 {
			t.Errorf("%s: %d served, %d remain", wire, served.Load(), remaining)
		}
	}
}

func TestWithoutRedisPermitsAreHeldAsThePolicySays(t *testing.T) {
	for mode, want := range map[sluicegate.FailureMode][2]int{ // of a request beside another, and after it
		sluicegate.FailLocal: {429, 200}, sluicegate.FailAllow: {200, 200}, sluicegate.FailDeny: {503, 503},
	} {
		client := redis.NewClient(&redis.Options{Addr: testkit.FreeAddr(), ContextTimeoutEnabled: true, DialerRetries: 1})
		defer client.Close()
		gate, err := sluicegate.Direct(client, sluicegate.Deadline(testkit.Patient), sluicegate.Logger(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		jobs, err := gate.Limit("jobs", sluicegate.Concurrency(1, time.Hour))
		if err == nil {
			jobs, err = jobs.OnStoreFailure(mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		var h http.Handler
		beside := 0
		h = sghttp.Concurrency(jobs)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Beside") != "" {
				return
			}
			beside = get(h, r.RemoteAddr, "X-Beside", "1").StatusCode
		}))
		if r := get(h, "203.0.113.7:1"); mode == sluicegate.FailDeny {
			beside = r.StatusCode
		}
		if after := get(h, "203.0.113.7:1", "X-Beside", "1").StatusCode; beside != want[0] || after != want[1] {
			t.Errorf("%v: %d beside another, %d after it, expected %v", mode, beside, after, want)
		}
	}
}

// A server that is gone costs an answer no more than a moment, however long its deadline is.
func TestAReleaseThatHangsDelaysNoAnswer(t *testing.T) {
	hang, asked := make(chan struct{}), make(chan struct{}, 1)
	defer close(hang)
	pool := sluicegate.ByFunc(func(_ context.Context, r sluicegate.Request) (sluicegate.Decision, error) {
		if r.Verb == "release" {
			asked <- struct{}{}
			<-hang
			return sluicegate.Decision{}, errors.New("no answer")
		}
		return sluicegate.Decision{Allowed: true, Granted: r.Cost}, nil
	}).Policy("pool")
	if r := get(sghttp.Concurrency(pool)(hello), "203.0.113.7:1"); r.StatusCode != http.StatusOK {
		t.Error(r.StatusCode)
	}
	<-asked
}
