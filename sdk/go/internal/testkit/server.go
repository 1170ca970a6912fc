package testkit

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// StartServer starts a server on a Redis, which publishes its policies there, and returns its address.
func StartServer(t testing.TB, redisAddr, policies string, env ...string) string {
	t.Helper()
	program := ServerProgram(t)
	file := filepath.Join(t.TempDir(), "policies.json")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := FreeAddr()
	cmd := exec.Command(program, "serve", "--policies", file, "--listen", addr, "--store", "redis://"+redisAddr+"?deadline_ms=5000")
	for _, listener := range []string{"RESP", "RLS", "ADMIN"} {
		cmd.Env = append(cmd.Environ(), "SLUICEGATE__"+listener+"__LISTEN=127.0.0.1:0")
	}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := make(chan string, 1)
	go func() {
		var lines []string
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if len(lines) < 20 {
				lines = append(lines, scan.Text())
			}
		}
		log <- strings.Join(lines, "\n")
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 1000 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return addr
		}
		select {
		case text := <-log:
			if strings.Contains(text, "publish") {
				SkipOrFail(t, "the server program does not publish policies of files")
			}
			t.Fatal(text)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("the server does not listen")
	return ""
}
