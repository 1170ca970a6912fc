package sgotel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"log/slog"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	sgotel "github.com/sluicegate/sluicegate/sdk/go/otel"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// faultsPage has the table of faults, whose rows these tests play.
const faultsPage = "../../../docs/sdk-faults.md"

// asks is how often a program is asked while a fault lasts.
const asks = 20

// row is what the page promises of a fault: the code of each cell.
type row struct{ answer, log, health, metric, after []string }

// rowsOf reads the table below a heading of the page.
func rowsOf(t *testing.T, heading string) map[string]row {
	t.Helper()
	text, err := os.ReadFile(faultsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %s", faultsPage, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows, code := map[string]row{}, regexp.MustCompile("`([^`]+)`")
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 6 || cells[0] == "| Fault" {
			continue
		}
		var found [6][]string
		for i, cell := range cells {
			for _, match := range code.FindAllStringSubmatch(cell, -1) {
				found[i] = append(found[i], match[1])
			}
		}
		rows[strings.TrimPrefix(cells[0], "| ")] = row{found[1], found[2], found[3], found[4], found[5]}
	}
	return rows
}

// text collects what is logged.
type text struct {
	mu  sync.Mutex
	out strings.Builder
}

func (l *text) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

// lines returns the lines of a level, and forgets nothing.
func (l *text) lines(level string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(l.out.String(), "\n") {
		if strings.Contains(line, "level="+level+" ") {
			out = append(out, line)
		}
	}
	return out
}

func (l *text) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Reset()
}

// program is a service with a guarded route, with its metrics, its log and its health.
type program struct {
	t      *testing.T
	gate   *sluicegate.Gate
	url    string
	log    text
	reader *metric.ManualReader
	result atomic.Pointer[string] // of the last request, as a metric has it
}

// serve starts a program with a gate that is made with some options.
func serve(t *testing.T, policy string, open func(...sluicegate.Option) (*sluicegate.Gate, error)) *program {
	t.Helper()
	p := &program{t: t}
	p.reader = metric.NewManualReader(metric.WithTemporalitySelector(func(metric.InstrumentKind) metricdata.Temporality { return metricdata.DeltaTemporality }))
	metrics, err := sgotel.New(metric.NewMeterProvider(metric.WithReader(p.reader)))
	if err != nil {
		t.Fatal(err)
	}
	observer := sluicegate.Observer(func(_ context.Context, o sluicegate.Observation) {
		result := "mode=" + string(o.Decision.Mode)
		var known *sluicegate.Error
		if errors.As(o.Err, &known) {
			result = "error.type=" + known.Name
		}
		p.result.Store(&result)
	})
	p.gate, err = open(metrics, observer, sluicegate.App("shop"), sluicegate.Logger(slog.New(slog.NewTextHandler(&p.log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.gate.Close() })
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	server := httptest.NewServer(sghttp.Middleware(p.gate.Policy(policy))(ok))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// direct starts a program that decides in a Redis.
func direct(t *testing.T, policy string, o *redis.Options) *program {
	o.ContextTimeoutEnabled = true
	return serve(t, policy, func(options ...sluicegate.Option) (*sluicegate.Gate, error) {
		client := redis.NewClient(o)
		t.Cleanup(func() { client.Close() })
		return sluicegate.Direct(client, append(options, sluicegate.NoWarmUp(), sluicegate.Nodes(2))...)
	})
}

// answer is what a client gets, and what a metric counts.
type answer struct {
	status, left, result string
	fields               map[string]bool
}

func (p *program) ask(change ...func(*http.Request)) answer {
	p.t.Helper()
	r, err := http.NewRequest(http.MethodGet, p.url+"/orders", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if strings.Contains(string(body), "orders") || strings.Contains(string(body), "127.0.0.1") {
		p.t.Errorf("a client gets names or addresses: %s", body)
	}
	a := answer{status: strconv.Itoa(response.StatusCode), left: response.Header.Get("RateLimit"), result: *p.result.Load(), fields: map[string]bool{}}
	for _, name := range []string{"RateLimit", "Retry-After"} {
		a.fields[name] = response.Header.Get(name) != ""
	}
	return a
}

// until asks until a result is such.
func (p *program) until(result string) {
	p.t.Helper()
	testkit.Eventually(p.t, "no "+result, func() bool { return p.ask().result == result })
}

// counted returns how often each result was counted since the last call.
func (p *program) counted() map[string]int {
	p.t.Helper()
	var data metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &data); err != nil {
		p.t.Fatal(err)
	}
	results := map[string]int{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "sluicegate.decisions" {
				continue
			}
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				for _, name := range []string{"mode", "error.type"} {
					if value, ok := point.Attributes.Value(attribute.Key(name)); ok {
						results[name+"="+value.AsString()] += int(point.Value)
					}
				}
			}
		}
	}
	return results
}

// isAsThePageSays asks while a fault lasts, and compares a row.
func (p *program) isAsThePageSays(r row, address string) {
	t := p.t
	t.Helper()
	p.until(r.metric[0])
	p.counted()
	for n := 0; n < asks; {
		a := p.ask()
		if a.result == "mode=shed" { // a process that is late itself, on a busy machine
			continue
		}
		n++
		if a.status != r.answer[0] || a.result != r.metric[0] {
			t.Fatalf("%+v, expected %v %v", a, r.answer, r.metric)
		}
		for name, is := range a.fields {
			if is != contains(r.answer, name) {
				t.Fatalf("%+v: %s, expected %v", a, name, r.answer)
			}
		}
	}
	if counted := p.counted(); counted[r.metric[0]] != asks {
		t.Errorf("counted %v, expected %d of %v", counted, asks, r.metric)
	}
	// There is a line for each cause, not for each request. A fault may have several, such as a line that breaks before another is refused.
	lines := p.log.lines("WARN")
	if len(lines) > 4 || len(r.log) == 0 && len(lines) > 0 {
		t.Errorf("%d lines: %s", len(lines), strings.Join(lines, "\n"))
	}
	if len(r.log) > 0 && !hasAll(lines, append([]string{address}, r.log...)) {
		t.Errorf("no line has %q: %s", r.log, strings.Join(lines, "\n"))
	}
	p.health(r, address)
}

func (p *program) health(r row, address string) {
	p.t.Helper()
	h := p.gate.Health(context.Background())
	cause := ""
	if h.Err != nil {
		cause = h.Err.Error()
	}
	if string(h.Status) != r.health[0] || h.Address != address || !hasAll([]string{cause}, r.health[1:]) || strings.Contains(cause, "s3cret") {
		p.t.Errorf("health %+v, expected %v at %s", h, r.health, address)
	}
}

// isOver waits until a fault is over, and compares what the row says of that.
func (p *program) isOver(r row) {
	p.t.Helper()
	began := time.Now()
	p.until("mode=store")
	took := time.Since(began)
	testkit.Eventually(p.t, "not up", func() bool { return p.gate.Health(context.Background()).Status == sluicegate.StatusUp })
	if len(r.after) > 0 && !hasAll(p.log.lines("INFO"), r.after) {
		p.t.Errorf("no line has %q: %s", r.after, p.log.lines("INFO"))
	}
	if a := p.ask(); a.status != "200" || !a.fields["RateLimit"] {
		p.t.Errorf("%+v", a)
	}
	p.t.Logf("decided in Redis again after %v", took)
}

func contains(list []string, text string) bool {
	for _, each := range list {
		if each == text {
			return true
		}
	}
	return false
}

// hasAll reports whether one of the lines has all words.
func hasAll(lines, words []string) bool {
	for _, line := range lines {
		all := true
		for _, word := range words {
			// A log quotes what has quotes.
			all = all && (strings.Contains(line, word) || strings.Contains(strings.ReplaceAll(line, `\"`, `"`), word))
		}
		if all {
			return true
		}
	}
	return false
}

// world is a Redis of its own behind a relay.
type world struct {
	t       *testing.T
	addr    string
	options []string
	server  *exec.Cmd
	admin   *redis.Client
	relay   *testkit.SlowRelay
}

func newWorld(t *testing.T, options ...string) *world {
	t.Helper()
	w := &world{t: t, addr: testkit.FreeAddr(), options: options}
	w.start()
	t.Cleanup(w.kill)
	w.admin, w.relay = testkit.Dial(t, w.addr), testkit.NewSlowRelay(t, w.addr, 0, 0)
	return w
}

func (w *world) start() {
	var err error
	if w.server, err = testkit.StartRedis(w.addr, w.options...); err != nil {
		testkit.SkipOrFail(w.t, err.Error())
	}
}

func (w *world) kill() {
	_ = w.server.Process.Kill()
	_ = w.server.Wait()
}

func (w *world) do(args ...any) {
	w.t.Helper()
	if err := w.admin.Do(context.Background(), args...).Err(); err != nil {
		w.t.Fatal(args, err)
	}
}

// publish publishes a policy as a server does.
func (w *world) publish(name string, version, limit int64) {
	w.t.Helper()
	changed := testkit.RulesOf(testkit.Set(w.t, testkit.Window(limit, time.Hour)))
	changed["version"] = version
	// In one step: a program that reads in between finds nothing published.
	replace := "redis.call('del', KEYS[1]) return redis.call('hset', KEYS[1], unpack(ARGV))"
	w.do("eval", replace, 1, "sg:{policies}", "#format", "1", "#revision", version, "#clock", "server", name, testkit.RecordWith(w.t, "reject", changed))
	w.do("publish", "sg:policies", version)
}

// fault begins and ends what a row is about.
type fault struct{ begin, end func(*world) }

// running are faults of a Redis that decided before.
var running = map[string]fault{
	"Redis is killed": {(*world).kill, func(w *world) { w.start(); w.publish("orders", 1, 1000) }},
	"Redis is frozen": {func(w *world) { _ = w.server.Process.Signal(syscall.SIGSTOP) }, func(w *world) { _ = w.server.Process.Signal(syscall.SIGCONT) }},
	"Redis comes back empty": {func(w *world) { w.kill(); w.start(); w.do("publish", "sg:policies", 2) },
		func(w *world) { w.publish("orders", 3, 1000) }},
	"Redis is slow by 70 ms": {func(w *world) { w.relay.Later.Store(int64(70 * time.Millisecond)) }, func(w *world) { w.relay.Later.Store(0) }},
	"Redis is full":          {func(w *world) { w.do("config", "set", "maxmemory", "1") }, func(w *world) { w.do("config", "set", "maxmemory", "0") }},
	"the policy cannot be read": {func(w *world) {
		w.do("hset", "sg:{policies}", "#revision", 2, "orders", "{")
		w.do("publish", "sg:policies", 2)
	}, func(w *world) { w.publish("orders", 3, 1000) }},
	"the password is changed": {func(w *world) {
		w.do("config", "set", "requirepass", "s3cret")
		w.do("client", "kill", "type", "normal", "skipme", "yes")
	}, func(w *world) { w.do("config", "set", "requirepass", "") }},
}

// starting are faults that a program finds at its start: the address, and what ends it; nil: a program that is started again.
var starting = map[string]func(*testing.T) (*redis.Options, func()){
	"Redis is away at the start": func(t *testing.T) (*redis.Options, func()) {
		w := &world{t: t, addr: testkit.FreeAddr()}
		return &redis.Options{Addr: w.addr}, func() {
			w.start()
			t.Cleanup(w.kill)
			w.admin = testkit.Dial(t, w.addr)
			w.publish("orders", 1, 1000)
		}
	},
	"nothing is published": func(t *testing.T) (*redis.Options, func()) {
		w := newWorld(t)
		return &redis.Options{Addr: w.addr}, func() { w.publish("orders", 1, 1000) }
	},
	"the password is wrong": func(t *testing.T) (*redis.Options, func()) {
		w := newWorld(t)
		w.publish("orders", 1, 1000)
		w.do("config", "set", "requirepass", "right")
		return &redis.Options{Addr: w.addr, Password: "wrong-s3cret"}, nil
	},
	"Redis expects TLS": func(t *testing.T) (*redis.Options, func()) {
		return &redis.Options{Addr: answering(t, "\x15\x03\x01\x00\x02\x02\x46")}, nil
	},
	"something else answers": func(t *testing.T) (*redis.Options, func()) {
		return &redis.Options{Addr: answering(t, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")}, nil
	},
}

// answering listens, and answers whatever it is asked with a text.
func answering(t *testing.T, text string) string {
	return testkit.Accept(t, func(near net.Conn) {
		defer near.Close()
		if _, err := near.Read(make([]byte, 4096)); err == nil {
			_, _ = io.WriteString(near, text)
		}
	})
}

// edits are changes of the policy `orders`.
var edits = map[string]func(*world){
	"the policy is edited":  func(w *world) { w.publish("orders", 2, 700) },
	"the policy is removed": func(w *world) { w.publish("others", 2, 700) },
	"the policy is renamed": func(w *world) { w.publish("purchases", 2, 1000) },
}

func TestFaultsOfRedisAreAsThePageSays(t *testing.T) {
	rows := rowsOf(t, "Go")
	play := func(name string, f func(*testing.T, row)) {
		r, known := rows[name]
		delete(rows, name)
		t.Run(name, func(t *testing.T) {
			if !known {
				t.Fatalf("%s has no such row", faultsPage)
			}
			f(t, r)
		})
	}
	for name, fault := range running {
		play(name, func(t *testing.T, r row) {
			w := newWorld(t)
			w.publish("orders", 1, 1000)
			p := direct(t, "orders", &redis.Options{Addr: w.relay.Addr})
			p.until("mode=store")
			p.log.clear()
			fault.begin(w)
			if r.metric[0] == "mode=store" {
				testkit.Eventually(t, "the health stays", func() bool { return p.gate.Health(context.Background()).Status != sluicegate.StatusUp })
			}
			p.isAsThePageSays(r, w.relay.Addr)
			fault.end(w)
			p.isOver(r)
		})
	}
	for name, begin := range starting {
		play(name, func(t *testing.T, r row) {
			options, end := begin(t)
			p := direct(t, "orders", options)
			p.isAsThePageSays(r, options.Addr)
			if end != nil {
				end()
				p.isOver(r)
			}
		})
	}
	for name, edit := range edits {
		play(name, func(t *testing.T, r row) {
			w := newWorld(t)
			w.publish("orders", 1, 1000)
			p := direct(t, "orders", &redis.Options{Addr: w.addr})
			p.until("mode=store")
			p.log.clear()
			before := p.gate.Policy("orders")
			edit(w)
			testkit.Eventually(t, "the edit is not followed", func() bool {
				d, err := before.Peek(context.Background(), "k", 1)
				return err != nil || d.Limit != 1000
			})
			p.isAsThePageSays(r, w.addr)
			if name != "the policy is edited" {
				w.publish("orders", 3, 1000)
				p.isOver(r)
			}
		})
	}
	for name, request := range requests {
		play(name, func(t *testing.T, r row) {
			w := newWorld(t)
			w.publish("orders", 1, 1000)
			p := direct(t, "orders", &redis.Options{Addr: w.addr})
			p.until("mode=store")
			first := p.ask()
			for n := range 3 {
				a := p.ask(func(r *http.Request) { request(r, n) })
				if a.status != r.answer[0] || a.result != r.metric[0] || a.left == first.left {
					t.Errorf("%+v after %+v, expected %v", a, first, r)
				}
				first = a
			}
			p.health(r, w.addr)
			if lines := p.log.lines("WARN"); len(lines) > 0 {
				t.Error(lines)
			}
		})
	}
	play("the program stops while Redis hangs", func(t *testing.T, r row) {
		w := newWorld(t)
		w.publish("orders", 1, 1000)
		p := direct(t, "orders", &redis.Options{Addr: w.addr})
		p.until("mode=store")
		p.log.clear()
		_ = w.server.Process.Signal(syscall.SIGSTOP)
		defer func() { _ = w.server.Process.Signal(syscall.SIGCONT) }()
		p.isAsThePageSays(r, w.addr) // and it owes now
		began := time.Now()
		if err := p.gate.Close(); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		t.Logf("stopped after %v", took)
		if took > 5*time.Second { // one, on a quiet machine
			t.Errorf("it took %v", took)
		}
	})
	for name, begin := range servers {
		play(name, func(t *testing.T, r row) {
			var broken atomic.Bool
			broken.Store(true)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() && begin != nil {
					begin(w, r)
					return
				}
				_, _ = io.WriteString(w, goodAnswer)
			}))
			address := server.Listener.Addr().String()
			if begin == nil {
				server.Listener.Close()
			} else {
				server.Start()
			}
			p := serve(t, "orders", func(options ...sluicegate.Option) (*sluicegate.Gate, error) {
				return sluicegate.Remote("http://"+address, append(options, sluicegate.Deadline(200*time.Millisecond), sluicegate.Token("s3cret"))...)
			})
			p.isAsThePageSays(r, address)
			if begin == nil {
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Skip(err) // another program has the port now
				}
				server.Listener = l
				server.Start()
			}
			broken.Store(false)
			p.isOver(r)
			server.Close()
		})
	}
	for name := range rows {
		t.Errorf("%s: nothing plays the row %q", faultsPage, name)
	}
}

// requests are those that try to be others: n is how many of them came before.
var requests = map[string]func(r *http.Request, n int){
	"a request has 200 header fields": func(r *http.Request, _ int) {
		for n := range 200 {
			r.Header.Set("X-Name-"+strconv.Itoa(n), "value")
		}
	},
	"addresses are forged": func(r *http.Request, n int) {
		r.Header.Set("X-Forwarded-For", strings.Repeat("203.0.113.7, ", 200)+"198.51.100."+strconv.Itoa(n))
		r.Header.Set("Forwarded", "for=198.51.100."+strconv.Itoa(n))
		r.Header.Set("X-Real-IP", "198.51.100."+strconv.Itoa(n))
	},
}

// servers are faults of a server that decides for the program; nil: nothing listens.
var servers = map[string]http.HandlerFunc{
	"the server is away": nil,
	"the server hangs": func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client is gone
		<-r.Context().Done()
	},
	"the server answers 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"the token is wrong": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	},
}

const goodAnswer = `{"allowed":true,"code":1,"granted":1,"wait_us":0,"limit":5,"remaining":4,"retry_after_us":0,"reset_after_us":1,"rule":"r",` +
	`"quotas":[{"name":"r","limit":5,"remaining":4,"reset_after_us":1,"window_us":60000000}]}`
