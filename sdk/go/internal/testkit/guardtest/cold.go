package guardtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

// coldAddr is the variable by which the program of a test, started again, is a process that has just started.
const coldAddr = "SLUICEGATE_TEST_COLD_ADDR"

// coldLimit is what may pass of the coldRequests that a process gets at once.
const coldLimit, coldRequests = 20, 50

// Cold claims that the first requests of a process admit exactly the limit, through the middleware of a framework, in 20 starts. serve
// starts a server in this process, and returns a function that sends it a request and returns what became of that.
func Cold(t *testing.T, serve func(*testing.T, *sluicegate.Limiter) func() string) {
	if addr := os.Getenv(coldAddr); addr != "" {
		fmt.Println(coldRun(t, addr, serve))
		return
	}
	addr := testkit.FreeAddr()
	process, err := testkit.StartRedis(addr)
	if err != nil {
		testkit.SkipOrFail(t, err.Error())
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	ctx, client := context.Background(), testkit.Dial(t, addr)
	record := testkit.RecordWith(t, "reject", testkit.RulesOf(testkit.Set(t, testkit.Window(coldLimit, time.Hour))))
	for start := range 20 {
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(ctx, "sg:{policies}", "#format", "1", "#revision", "1", "#clock", "server", "reject", record).Err(); err != nil {
			t.Fatal(err)
		}
		cold := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cold.Env = append(os.Environ(), coldAddr+"="+addr, "GORACE=atexit_sleep_ms=0")
		output, err := cold.CombinedOutput()
		line, _, _ := strings.Cut(string(output), "\n")
		t.Log(start, line)
		if want := fmt.Sprintf("map[passed:%d refused:%d] map[store:%d]", coldLimit, coldRequests-coldLimit, coldRequests); err != nil || line != want {
			t.Errorf("%v: %s, expected %s", err, output, want)
		}
	}
}

// coldRun sends the requests of a process that has just started, and returns how many had which answer and which mode.
func coldRun(t *testing.T, addr string, serve func(*testing.T, *sluicegate.Limiter) func() string) string {
	var mu sync.Mutex
	answers, modes := map[string]int{}, map[sluicegate.Mode]int{}
	observer := sluicegate.Observer(func(_ context.Context, o sluicegate.Observation) {
		mu.Lock()
		defer mu.Unlock()
		mode := o.Decision.Mode
		if mode == sluicegate.ModeRemembered { // of the same budget
			mode = sluicegate.ModeStore
		}
		modes[mode]++
	})
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()
	gate, err := sluicegate.Direct(client, sluicegate.App("shop"), observer)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	ask := serve(t, gate.Policy("reject"))
	testkit.Together(coldRequests, func(int) {
		answer := ask()
		mu.Lock()
		defer mu.Unlock()
		answers[answer]++
	})
	return fmt.Sprint(answers, " ", modes)
}

// ColdHTTP is [Cold] for a framework of net/http.
func ColdHTTP(t *testing.T, guard Guard) {
	Cold(t, func(t *testing.T, limiter *sluicegate.Limiter) func() string {
		server := httptest.NewServer(guard(limiter))
		t.Cleanup(server.Close)
		return func() string {
			r, err := http.Get(server.URL + "/orders")
			if err != nil {
				return err.Error()
			}
			defer r.Body.Close()
			switch r.StatusCode {
			case http.StatusOK:
				return "passed"
			case http.StatusTooManyRequests:
				return "refused"
			default:
				return r.Status
			}
		}
	})
}
