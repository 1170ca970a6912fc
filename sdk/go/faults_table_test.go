package sluicegate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// rig is a Redis of its own behind a relay, and a program that decides there by the policy `a`.
type rig struct {
	t       *testing.T
	addr    string
	server  *exec.Cmd
	admin   *redis.Client
	relay   *slowRelay
	gate    *Gate
	log     lines
	mu      sync.Mutex
	results map[string]int // by what a metric would have: the mode, or the name of the error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, addr: freeAddr(), results: map[string]int{}}
	r.start()
	t.Cleanup(func() { _ = r.server.Process.Kill(); _ = r.server.Wait() })
	r.admin = dial(t, r.addr)
	r.relay = newSlowRelay(t, r.addr, 0, 0)
	r.publish()
	r.gate = coldGate(t, r.relay.Addr, nil, NoWarmUp(), r.log.logger(), Observer(r.observe), Nodes(2))
	r.decides("before")
	return r
}

func (r *rig) start() {
	var err error
	if r.server, err = startRedis(r.addr); err != nil {
		skipOrFail(r.t, err.Error())
	}
}

func (r *rig) publish() { publish(r.t, r.addr, 1, FixedWindow(1000, time.Hour)) }

func (r *rig) do(args ...any) {
	r.t.Helper()
	if err := r.admin.Do(context.Background(), args...).Err(); err != nil {
		r.t.Fatal(args, err)
	}
}

func (r *rig) observe(_ context.Context, o Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var known *Error
	if errors.As(o.Err, &known) {
		r.results[known.Name]++
		return
	}
	r.results[string(o.Decision.Mode)]++
}

// counted returns how many results were such, and forgets all.
func (r *rig) counted(result string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.results[result]
	clear(r.results)
	return n
}

func (r *rig) allow() (Decision, error) { return r.gate.Policy("a").Allow(context.Background(), "k") }

// decides waits until Redis decides and the gate is up, and returns how long that took.
func (r *rig) decides(when string) time.Duration {
	r.t.Helper()
	began := time.Now()
	eventually(r.t, when+": redis does not decide", func() bool {
		d, err := r.allow()
		return err == nil && d.Mode == ModeStore
	})
	took := time.Since(began)
	eventually(r.t, when+": not up", func() bool { return r.gate.Health(context.Background()).Status == StatusUp })
	return took
}

// TestEachFaultOfRedisShowsWhatItIs breaks Redis in each way, and compares what a caller, an operator and a metric get to see.
func TestEachFaultOfRedisShowsWhatItIs(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(*rig)
		mode       Mode     // by which requests are decided meanwhile
		log        []string // words of the line
		healthErr  error
		healthText string
	}{
		{"killed", func(r *rig) { _ = r.server.Process.Kill(); _ = r.server.Wait() }, func(r *rig) { r.start(); r.publish() },
			ModeLocal, []string{"redis does not answer", "mode=local", "1/2 of each limit"}, ErrNotCharged, ""},
		{"frozen", func(r *rig) { _ = r.server.Process.Signal(syscall.SIGSTOP) }, func(r *rig) { _ = r.server.Process.Signal(syscall.SIGCONT) },
			ModeLocal, []string{"redis does not answer", "no answer in time", "mode=local"}, ErrNotCharged, "no answer in time"},
		{"empty", func(r *rig) { r.do("flushall") }, (*rig).publish,
			ModeStore, []string{"no policies are published in redis any more", "the policies that are held"}, ErrNothingPublished, "start a server"},
		{"slow by 70 ms", func(r *rig) { r.relay.Later.Store(int64(70 * time.Millisecond)) }, func(r *rig) { r.relay.Later.Store(0) },
			ModeLocal, []string{"redis does not answer", "no answer in time", "mode=local"}, nil, "no answer in time"},
		{"full", func(r *rig) { r.do("config", "set", "maxmemory", "1") }, func(r *rig) { r.do("config", "set", "maxmemory", "0") },
			ModeLocal, []string{"redis answers with an error", "OOM", "mode=local"}, ErrNotCharged, "OOM"},
		{"wrong password", func(r *rig) {
			r.do("config", "set", "requirepass", "secret")
			r.do("client", "kill", "type", "normal", "skipme", "yes")
		}, func(r *rig) { r.do("config", "set", "requirepass", "") },
			ModeLocal, []string{"redis answers with an error", "NOAUTH", "mode=local"}, ErrNotCharged, "NOAUTH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.counted("")
			c.begin(r)
			for as := 0; as < 20; {
				d, err := r.allow()
				// Some may be shed before, while the process is late itself, as on a busy machine.
				if err != nil || !d.Allowed && d.Mode != ModeShed || d.Mode != c.mode && d.Mode != ModeShed {
					t.Fatalf("%+v, %v", d, err)
				}
				if d.Mode == c.mode {
					as++
				}
			}
			health := r.gate.Health(context.Background())
			if health.Status != StatusDegraded || health.Address != r.relay.Addr || health.Err == nil || c.healthErr != nil && !errors.Is(health.Err, c.healthErr) ||
				!strings.Contains(health.Err.Error(), c.healthText) {
				t.Errorf("health: %+v", health)
			}
			metric := r.counted(string(c.mode))
			if metric < 20 {
				t.Errorf("%d decisions of mode %s", metric, c.mode)
			}
			lines := r.log.with(append([]string{"level=WARN", r.relay.Addr}, c.log...)...)
			if len(lines) < 1 || len(lines) > 3 { // one of each cause, not one of each request
				t.Errorf("%d lines: %s", len(lines), &r.log)
			}
			c.end(r)
			back := r.decides("after")
			over := r.log.with("level=INFO", "again", r.relay.Addr)
			if len(over) == 0 {
				t.Errorf("no line when it was over: %s", &r.log)
			}
			if len(lines) > 0 {
				t.Logf("| %s | %s | %s | %s: %v | %s: %d | %v |", c.name, c.mode, lines[0], health.Status, health.Err, c.mode, metric, back)
			}
		})
	}
}

func TestAPolicyThatIsEditedRemovedOrRenamedShowsWhatItIs(t *testing.T) {
	r, ctx := newRig(t), context.Background()
	publish(t, r.addr, 2, FixedWindow(7, time.Hour))
	eventually(t, "edited", func() bool { d, err := r.allow(); return err == nil && d.Limit == 7 && d.Mode == ModeStore })
	isHealth(t, "edited", r.gate, StatusUp, r.relay.Addr, nil, "")
	r.counted("")
	publishRecords(t, r.addr, 3, map[string]string{"renamed": recordOf(t, 3, FixedWindow(7, time.Hour))})
	eventually(t, "removed", func() bool { _, err := r.allow(); return errors.Is(err, ErrUnknownPolicy) })
	for range 20 {
		_, _ = r.allow()
	}
	if n := r.counted("unknown_policy"); n < 20 {
		t.Errorf("%d errors in the metric", n)
	}
	if d, err := r.gate.Policy("renamed").Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
		t.Errorf("%+v, %v", d, err)
	}
	if got := r.log.with("level=WARN", "no decision", "policy=a", "unknown policy"); len(got) != 1 {
		t.Errorf("%s", &r.log)
	}
	isHealth(t, "a wrong name says nothing of Redis", r.gate, StatusUp, r.relay.Addr, nil, "")
	publish(t, r.addr, 4, FixedWindow(7, time.Hour))
	r.decides("published again")
	if got := r.log.with("level=INFO", "requests are decided again", "policy=a"); len(got) != 1 {
		t.Errorf("%s", &r.log)
	}
}

func TestAGateClosesInTimeWhileRedisHangs(t *testing.T) {
	r := newRig(t)
	_ = r.server.Process.Signal(syscall.SIGSTOP)
	defer func() { _ = r.server.Process.Signal(syscall.SIGCONT) }()
	for range 10 {
		if d, err := r.allow(); err != nil || !d.Allowed && d.Mode != ModeShed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	began := time.Now()
	if err := r.gate.Close(); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("closed in %v", took)
	if took > 5*time.Second { // one second, on a quiet machine
		t.Errorf("%v", took)
	}
}

// TestEachFaultOfAServerShowsWhatItIs does the same for a gate that sends its requests to a server.
func TestEachFaultOfAServerShowsWhatItIs(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		serve  http.HandlerFunc // of everything
		err    *Error
		status Status
		words  []string
	}{
		{"away", nil, ErrNotCharged, StatusDown, []string{"refused"}},
		{"hung", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client is gone
			<-r.Context().Done()
		}, ErrPerhapsCharged, StatusDown, []string{"no answer in time"}},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, ErrServer, StatusDown, []string{"server: 500"}},
		{"wrong token", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				w.WriteHeader(401)
			}
		}, ErrServer, StatusDown, []string{"server: 401"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			broken, results := false, map[string]int{}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				serve := c.serve
				if !broken {
					serve = nil
				}
				mu.Unlock()
				if serve != nil {
					serve(w, r)
					return
				}
				_, _ = w.Write([]byte(goodAnswer))
			}))
			server.Start()
			defer server.Close()
			address, log := server.Listener.Addr().String(), &lines{}
			gate := remoteOf(t, "http://"+address, Deadline(100*time.Millisecond), Token("secret"), log.logger(),
				Observer(func(_ context.Context, o Observation) {
					var known *Error
					if errors.As(o.Err, &known) {
						results[known.Name]++
					}
				}))
			a := gate.Policy("a")
			if _, err := a.Allow(ctx, "k"); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			broken = true
			mu.Unlock()
			if c.serve == nil {
				server.Close()
				_, _ = a.Allow(ctx, "k") // on a connection that was kept
			}
			for range 5 {
				if _, err := a.Allow(ctx, "k"); !errors.Is(err, c.err) {
					t.Errorf("%v", err)
				}
			}
			health := gate.Health(ctx)
			if health.Status != c.status || health.Address != address || health.Err == nil || !strings.Contains(health.Err.Error(), c.words[0]) {
				t.Errorf("health: %+v", health)
			}
			if results[c.err.Name] < 5 {
				t.Errorf("%v", results)
			}
			lines := log.with(append([]string{"level=WARN", "no decision", "address=" + address, "meanwhile="}, c.words...)...)
			if len(lines) != 1 || len(log.with("secret")) > 0 {
				t.Errorf("%s", log)
				return
			}
			t.Logf("| %s | %s | %s | %s: %v | %s: 5 |", c.name, c.err.Name, lines[0], c.status, health.Err, c.err.Name)
			if c.serve == nil {
				return
			}
			mu.Lock()
			broken = false
			mu.Unlock()
			if _, err := a.Allow(ctx, "k"); err != nil {
				t.Error(err)
			}
			isHealth(t, "after", gate, StatusUp, address, nil, "")
			if got := log.with("level=INFO", "requests are decided again", "address="+address); len(got) != 1 {
				t.Errorf("%s", log)
			}
		})
	}
}
