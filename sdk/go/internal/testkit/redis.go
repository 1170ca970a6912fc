// Package testkit has what the tests of several packages share: a Redis, clocks, rules, and the files of spec and testdata.
package testkit

import (
	"context"
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

// Patient is the deadline of tests that are not about the deadline: the longest there is, for a busy machine.
const Patient = 10 * time.Second

// RedisServer names the program of Redis or Valkey that tests start.
func RedisServer() string {
	if program := os.Getenv("SLUICEGATE_REDIS_SERVER"); program != "" {
		return program
	}
	return "redis-server"
}

// Long reports whether tests run for as long as an acceptance needs, and not only long enough to find mistakes.
func Long() bool { return os.Getenv("SLUICEGATE_LONG") == "1" }

var shared struct {
	once sync.Once
	addr string
	cmd  *exec.Cmd
	why  string
}

// StartRedis starts a Redis of its own, and returns its address.
func StartRedis(addr string, more ...string) (*exec.Cmd, error) {
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(RedisServer(), append([]string{"--port", port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"}, more...)...)
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
	return nil, fmt.Errorf("%s does not listen at %s", RedisServer(), addr)
}

// freeAddrs has the addresses that FreeAddr gave.
var freeAddrs sync.Map

// FreeAddr returns an address at which nothing listens, each once: the system may give the same port again.
func FreeAddr() string {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		addr := l.Addr().String()
		l.Close()
		if _, before := freeAddrs.LoadOrStore(addr, true); !before {
			return addr
		}
	}
}

// SkipOrFail skips a test that lacks a program, and fails it in CI.
func SkipOrFail(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// RedisAddr returns the address of a Redis that the tests share, emptied.
func RedisAddr(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		shared.addr = FreeAddr()
		if _, err := exec.LookPath(RedisServer()); err != nil {
			shared.why = RedisServer() + " is not installed"
			return
		}
		var err error
		if shared.cmd, err = StartRedis(shared.addr); err != nil {
			shared.why = err.Error()
		}
	})
	if shared.why != "" {
		SkipOrFail(t, shared.why)
	}
	client := Dial(t, shared.addr)
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	return shared.addr
}

// Dial returns a client that is closed with the test.
func Dial(t testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: Patient})
	t.Cleanup(func() { client.Close() })
	return client
}

// Together calls f in n goroutines at a time, and waits for all.
func Together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() { defer all.Done(); f(i) }()
	}
	all.Wait()
}

// Eventually waits for something.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 4000 { // 20 s: nothing takes so long on a quiet machine
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal(what)
}

// Main runs the tests of a package, and ends the Redis that they share.
func Main(m *testing.M) {
	code := m.Run()
	if shared.cmd != nil {
		_ = shared.cmd.Process.Kill()
		_ = shared.cmd.Wait()
	}
	os.Exit(code)
}

// ServerProgram returns the path of the server.
func ServerProgram(t testing.TB) string {
	t.Helper()
	program := os.Getenv("SLUICEGATE_BIN")
	if program == "" {
		program = filepath.Join(root, "../../target/debug/sluicegate")
	}
	if _, err := os.Stat(program); err != nil {
		SkipOrFail(t, "no server program at SLUICEGATE_BIN or target/debug/sluicegate")
	}
	return program
}
