package sluicegate

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patient is the deadline of tests that are not about the deadline: the longest there is, for a busy machine.
const patient = deadlineMax

// redisServer names the program of Redis or Valkey that tests start.
func redisServer() string {
	if program := os.Getenv("SLUICEGATE_REDIS_SERVER"); program != "" {
		return program
	}
	return "redis-server"
}

// long says whether tests run for as long as an acceptance asks, and not only long enough to find mistakes.
func long() bool { return os.Getenv("SLUICEGATE_LONG") == "1" }

var shared struct {
	once sync.Once
	addr string
	cmd  *exec.Cmd
	why  string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cmd != nil {
		_ = shared.cmd.Process.Kill()
		_ = shared.cmd.Wait()
	}
	os.Exit(code)
}

// startRedis starts a Redis of its own, and gives its address.
func startRedis(addr string, more ...string) (*exec.Cmd, error) {
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(redisServer(), append([]string{"--port", port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"}, more...)...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for range 1000 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return cmd, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil, fmt.Errorf("%s does not listen at %s", redisServer(), addr)
}

// given has the addresses that freeAddr gave.
var given sync.Map

// freeAddr gives an address at which nothing listens, each once: the system may give the same port again.
func freeAddr() string {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		addr := l.Addr().String()
		l.Close()
		if _, before := given.LoadOrStore(addr, true); !before {
			return addr
		}
	}
}

// skipOrFail skips a test that lacks a program, and fails it in CI.
func skipOrFail(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// redisAddr gives the address of a Redis that the tests share, emptied.
func redisAddr(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		shared.addr = freeAddr()
		if _, err := exec.LookPath(redisServer()); err != nil {
			shared.why = redisServer() + " is not installed"
			return
		}
		var err error
		if shared.cmd, err = startRedis(shared.addr); err != nil {
			shared.why = err.Error()
		}
	})
	if shared.why != "" {
		skipOrFail(t, shared.why)
	}
	client := dial(t, shared.addr)
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	return shared.addr
}

func dial(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: patient})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestTheScriptIsThatOfTheSpecification(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(specDir, "redis/decide.lua"))
	if err != nil {
		t.Fatal(err)
	}
	sha, _ := os.ReadFile(filepath.Join(specDir, "redis/decide.sha1"))
	if script != string(want) || scriptSHA() != string(bytes.TrimSpace(sha)) {
		t.Fatal("decide.lua is not spec/redis/decide.lua: copy it")
	}
}

func TestTheExampleOfTheProtocol(t *testing.T) {
	set := ruleSetOf(t, FixedWindow(10, time.Minute).Named("minute"))
	plan := ofPolicy("orders", set, instantOf(time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)))
	for _, pair := range [][2]string{
		{stateKey("orders", "alice"), "sg:{WYSeHag-hqRckSRns0jV-w}"},
		{stateKey("a", "b"), "sg:{z2q2E-OUI5H4jtaYVX4WgA}"},
		{hex.EncodeToString(plan.blob), "060b0002000105050128cdd20eaf134a050000000000002440000000000000000000000000389c8c41000000000000000000000000000000009e5667e13a8860ea000000"},
		{plan.rulesKey, "sg:rules:amVe8lwjHh50SFePmz7I3w:9e5667e13a88"},
		{hex.EncodeToString(encodeRequest(clockServer, request{verb: verbCheck, cost: 1}, foreign{})), "010001000000"},
		{hex.EncodeToString(permitID.bytes(permitOf("job-7"))), "fc7d5856c683d94f70813773fb8e0104"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s, expected %s", pair[0], pair[1])
		}
	}
}

func (id permitID) bytes() []byte { return id[:] }

func TestTheRulesOfALimitMadeInCodeAreInItsStates(t *testing.T) {
	for _, rules := range [][]Rule{
		{PerMinute(10).Burst(20)},
		{SmoothWarmup(3, 7*time.Second, 11*time.Second).ColdFactor(2.5)},
		{PerSecond(5).Named("second"), SlidingLog(100, time.Hour).Named("hour")},
		{Concurrency(4, time.Minute)},
	} {
		set, err := madeInCode("mail", rules, callerRule)
		if err != nil {
			t.Fatal(err)
		}
		plan := ofCaller("mail", set)
		read, blob, err := parseCallerHead(append(append([]byte(nil), plan.head...), 1, 2, 3))
		if err != nil || !bytes.Equal(blob, plan.blob) || !bytes.Equal(read.bytes(), set.bytes()) {
			t.Errorf("%v: %v", rules, err)
		}
	}
}

func TestRedisPassesAllVectors(t *testing.T) {
	client := dial(t, redisAddr(t))
	at := time.Now()
	store := newRedisStore(redisConn{client}, 5*time.Second, func() time.Time { return at }, func() clock { return clockGiven })
	for name, v := range loadVectors(t) {
		t.Run(name, func(t *testing.T) {
			instant := int64(1000)
			plan := ofPolicy(name, vectorSet(t, v.Rules, ""), instant)
			for place, step := range v.Steps {
				if step.Op == "configure" {
					instant++
					plan = ofPolicy(name, vectorSet(t, step.Rules, step.Carry), instant)
					continue
				}
				r := step.request()
				if r.cost < 1 || r.cost > CostMax {
					continue
				}
				got, f := store.ask(context.Background(), question{plan: plan, key: stateKey(name, "k"), request: r})
				if step.Expect.Error == "unsupported" {
					if f == nil || f.cause != errUnsupported {
						t.Fatalf("step %d: %v, expected an unsupported verb", place, f)
					}
					continue
				}
				if f != nil {
					t.Fatalf("step %d: %v", place, f)
				}
				step.compare(t, place, plan.set, got.verdict)
			}
		})
	}
}
