// Command bench measures what a decision of the SDK for Go costs, beside redis_rate and a bare call of a script.
//
//	bench/sdk/go/run --redis PORT [--rounds 7] [--calls 20000]
//
// One goroutine asks, one call after the other, about 100 keys in turn. Rounds alternate between the cases, and the
// least of each figure over all rounds is printed, one JSON object a line:
//
//	bare             EVALSHA of `return 1` by go-redis: what no limiter can be cheaper than
//	sluicegate       a policy of one token bucket, decided in Redis
//	sluicegate_code  a limit of one token bucket made in code
//	redis_rate       Limiter.Allow of redis_rate v10
//	denied           a key that the process knows to be refused: Redis is not asked
//	kernel           the arithmetic of one token bucket, by BenchmarkKernel of the SDK
//
// `client_us` is CPU time of this process for a decision by getrusage, `redis_us` that of Redis by INFO, `allocs` the
// allocations of this process, and `per_second` the decisions on the wall's clock, which is noise where cores are shared.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

// keys is how many budgets are asked for in turn.
const keys = 100

// figure is what a case cost in its best round.
type figure struct {
	SDK       string   `json:"sdk"`
	Case      string   `json:"case"`
	Calls     int      `json:"calls"`
	ClientUS  float64  `json:"client_us"`
	RedisUS   *float64 `json:"redis_us"`
	Allocs    *float64 `json:"allocs"`
	PerSecond float64  `json:"per_second"`
}

// contender is one case.
type contender struct {
	name  string
	calls int // how many times as many as asked for, for what takes less than a microsecond
	ask   func(ctx context.Context, key string) error
}

func main() {
	rounds := flag.Int("rounds", 7, "rounds of all cases")
	calls := flag.Int("calls", 20_000, "decisions of a case in a round")
	port := flag.Int("redis", 6379, "port of a Redis on this machine, whose keys are overwritten")
	sdk := flag.String("sdk", "../../../sdk/go", "folder of the SDK, for the kernel")
	flag.Parse()
	if err := run(*rounds, *calls, *port, *sdk); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds, calls, port int, sdk string) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port), ContextTimeoutEnabled: true})
	defer rdb.Close()
	list, done, err := contenders(ctx, rdb)
	if err != nil {
		return err
	}
	defer done()
	names := make([]string, keys)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	best := make([]*figure, len(list))
	for range rounds {
		for i, c := range list {
			got, err := measure(ctx, rdb, c, calls*c.calls, names)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			best[i] = better(best[i], got)
		}
	}
	kernel, err := kernel(sdk)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, f := range append(best, kernel) {
		if err := out.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// contenders makes the cases ready: their scripts are loaded, and their keys known.
func contenders(ctx context.Context, rdb *redis.Client) ([]contender, func(), error) {
	// A token bucket of 10^9 permits a second.
	const record = `{"record":1,"version":1,"app":"bench","apps":["bench"],"on_store_failure":"local","overflow":{"kind":"reject"},` +
		`"blob":"AgABAQkBZj6DbrIHFd0AAAAAAADwPwAAAAAAQI9AAAAAAAAA8D8AAAAAZc3NQQAAAABlzc1BAAAAAAAAAAAAAAAAAAAAAAAAAABlzc1BAAAAAICELkE",` +
		`"life_ms":1001,"each":[{"name":"token_bucket","limit":1000000000,"window_us":1000000}]}`
	if err := rdb.HSet(ctx, "sg:{policies}", "#format", "1", "#revision", "1", "bench", record).Err(); err != nil {
		return nil, nil, err
	}
	gate, err := sluicegate.Direct(rdb, sluicegate.App("bench"), sluicegate.Deadline(10*time.Second))
	if err != nil {
		return nil, nil, err
	}
	mine, err := gate.Limit("bench", sluicegate.PerSecond(1_000_000_000).Burst(1_000_000_000))
	if err != nil {
		return nil, nil, err
	}
	never, err := gate.Limit("never", sluicegate.FixedWindow(1, 366*24*time.Hour))
	if err != nil {
		return nil, nil, err
	}
	one, err := rdb.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, nil, err
	}
	peer, limit := redis_rate.NewLimiter(rdb), redis_rate.Limit{Rate: 1_000_000_000, Burst: 1_000_000_000, Period: time.Second}
	passes := func(l *sluicegate.Limiter) func(context.Context, string) error {
		return func(ctx context.Context, key string) error {
			d, err := l.Allow(ctx, key)
			if err == nil && (!d.Allowed || d.Mode != sluicegate.ModeStore) {
				err = fmt.Errorf("decided %v by %s", d.Allowed, d.Mode)
			}
			return err
		}
	}
	return []contender{
		{"bare", 1, func(ctx context.Context, key string) error { return rdb.EvalSha(ctx, one, []string{key}).Err() }},
		{"sluicegate", 1, passes(gate.Policy("bench"))},
		{"sluicegate_code", 1, passes(mine)},
		{"redis_rate", 1, func(ctx context.Context, key string) error {
			got, err := peer.Allow(ctx, key, limit)
			if err == nil && got.Allowed == 0 {
				err = fmt.Errorf("refused")
			}
			return err
		}},
		{"denied", 10, func(ctx context.Context, key string) error { _, err := never.AllowN(ctx, key, 2); return err }},
	}, func() { _ = gate.Close() }, nil
}

// measure has a case decide, after a few decisions that are not counted.
func measure(ctx context.Context, rdb *redis.Client, c contender, calls int, names []string) (*figure, error) {
	for _, key := range names {
		if err := c.ask(ctx, key); err != nil {
			return nil, err
		}
	}
	before, err := redisCPU(ctx, rdb)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	mallocs, own, started := memory.Mallocs, ownCPU(), time.Now()
	for i := range calls {
		if err := c.ask(ctx, names[i%len(names)]); err != nil {
			return nil, err
		}
	}
	took, client := time.Since(started), ownCPU()-own
	runtime.ReadMemStats(&memory)
	after, err := redisCPU(ctx, rdb)
	if err != nil {
		return nil, err
	}
	each := func(v float64) *float64 { v = math.Round(v/float64(calls)*1000) / 1000; return &v }
	f := &figure{
		SDK: "go", Case: c.name, Calls: calls, ClientUS: *each(client), RedisUS: each(after - before),
		Allocs: each(float64(memory.Mallocs - mallocs)), PerSecond: math.Round(float64(calls) / took.Seconds()),
	}
	return f, nil
}

// better gives the best of each figure.
func better(a, b *figure) *figure {
	if a == nil {
		return b
	}
	*b.RedisUS, *b.Allocs = min(*a.RedisUS, *b.RedisUS), min(*a.Allocs, *b.Allocs)
	b.ClientUS, b.PerSecond = min(a.ClientUS, b.ClientUS), max(a.PerSecond, b.PerSecond)
	return b
}

// ownCPU gives the CPU time of this process in microseconds.
func ownCPU() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it has no way to fail for this process
	}
	return float64(used.Utime.Sec+used.Stime.Sec)*1e6 + float64(used.Utime.Usec+used.Stime.Usec)
}

// redisCPU gives the CPU time of Redis in microseconds.
func redisCPU(ctx context.Context, rdb *redis.Client) (float64, error) {
	info, err := rdb.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, after, _ := strings.Cut(info, name)
		text, _, _ := strings.Cut(after, "\r\n")
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu has no %s", name)
		}
		total += seconds * 1e6
	}
	return total, nil
}

// kernel has the SDK measure its arithmetic, in which no Redis has a part.
func kernel(sdk string) (*figure, error) {
	command := exec.Command("go", "test", "-run", "^$", "-bench", "^BenchmarkKernel$", "-benchtime", "300ms", "-count", "3", "-cpu", "1", "./internal/kernel")
	command.Dir, command.Stderr = sdk, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	f := &figure{SDK: "go", Case: "kernel", ClientUS: math.Inf(1)}
	for _, line := range strings.Split(string(out), "\n") {
		words := strings.Fields(line)
		if len(words) < 8 || !strings.HasPrefix(words[0], "BenchmarkKernel") {
			continue
		}
		ns, _ := strconv.ParseFloat(words[2], 64)
		allocs, _ := strconv.ParseFloat(words[6], 64)
		calls, _ := strconv.Atoi(words[1])
		if us := ns / 1000; us < f.ClientUS {
			f.Calls, f.ClientUS, f.Allocs, f.PerSecond = calls, us, &allocs, math.Round(1e9/ns)
		}
	}
	if f.Allocs == nil {
		return nil, fmt.Errorf("kernel: no figure in: %s", out)
	}
	return f, nil
}
