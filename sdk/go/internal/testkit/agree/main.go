// Agree decides the steps that sdk/agree/agree.py sends, so that they can be compared with the answers of a server; and those
// of sdk/agree/charged.py, which it sends to a server; and those of sdk/agree/outage.py, of which Redis decides none.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

// step is a line of the input: where Redis or a server is, or a request.
type step struct {
	Redis  string `json:"redis"`
	Server string `json:"server"`
	// Nodes is how many programs share the Redis, if the program may decide without it; DeadlineMS is that of its calls, or
	// of requests of a server.
	Nodes      int64  `json:"nodes"`
	DeadlineMS int64  `json:"deadline_ms"`
	NowUS      int64  `json:"now_us"`
	Op         string `json:"op"`
	Policy     string `json:"policy"`
	Key        string `json:"key"`
	Cost       int64  `json:"cost"`
	Charged    int64  `json:"charged"`
	MaxWait    int64  `json:"max_wait_us"`
	ID         string `json:"id"`
}

// answer is a decision as spec/vectors have it.
type answer struct {
	Allowed    bool   `json:"allowed"`
	Granted    int64  `json:"granted"`
	Wait       int64  `json:"wait_us"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_us"`
	ResetAfter int64  `json:"reset_after_us"`
	Rule       string `json:"rule"`
}

// clock is the time of the steps, in µs since 1970.
type clock struct{ us atomic.Int64 }

func (c *clock) Now() time.Time { return time.UnixMicro(c.us.Load()) }

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.us.Add(d.Microseconds())
	return ctx.Err()
}

// deadline is long, since what is compared are decisions, on a machine that may be busy.
const deadline = 5 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	var now clock
	var gate *sluicegate.Gate
	var elsewhere bool
	for lines.Scan() {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return err
		}
		now.us.Store(s.NowUS)
		var result any = struct{}{}
		if gate == nil {
			var err error
			if gate, err = gateOf(s, &now); err != nil {
				return err
			}
			defer gate.Close()
			elsewhere = s.Server != "" || s.Nodes > 0
		} else {
			d, err := decide(gate.Policy(s.Policy), s)
			if result, err = answerOf(d, err, elsewhere); err != nil {
				return err
			}
		}
		if err := out.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func gateOf(s step, now *clock) (*sluicegate.Gate, error) {
	if s.Server != "" {
		return sluicegate.Remote(s.Server, sluicegate.Deadline(time.Duration(s.DeadlineMS)*time.Millisecond))
	}
	client := redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true})
	if s.Nodes > 0 {
		within := time.Duration(s.DeadlineMS) * time.Millisecond
		return sluicegate.Direct(client, sluicegate.WithClock(now), sluicegate.NoWarmUp(), sluicegate.Deadline(within), sluicegate.Nodes(s.Nodes))
	}
	return sluicegate.Direct(client, sluicegate.WithClock(now), sluicegate.NoWarmUp(), sluicegate.Deadline(deadline))
}

func decide(l *sluicegate.Limiter, s step) (sluicegate.Decision, error) {
	ctx := context.Background()
	switch s.Op {
	case "check":
		return l.AllowN(ctx, s.Key, s.Cost)
	case "reserve":
		return l.Reserve(ctx, s.Key, s.Cost, time.Duration(s.MaxWait)*time.Microsecond)
	case "at_most":
		return l.AllowAtMost(ctx, s.Key, s.Cost)
	case "peek":
		return l.Peek(ctx, s.Key, s.Cost)
	case "refund":
		return l.Refund(ctx, s.Key, s.Cost)
	case "reset":
		return l.Reset(ctx, s.Key)
	case "acquire":
		permit, err := l.AcquireN(ctx, s.Key, s.ID, s.Cost)
		var limited *sluicegate.LimitedError
		if errors.As(err, &limited) {
			return limited.Decision, nil
		}
		if err != nil {
			return sluicegate.Decision{}, err
		}
		return permit.Decision, nil
	case "settle":
		settled, err := l.Settle(ctx, s.Key, s.ID, s.Charged, s.Cost)
		return settled.Decision, err
	case "release":
		return l.Release(ctx, s.Key, s.ID)
	case "renew":
		return l.Renew(ctx, s.Key, s.ID)
	}
	return sluicegate.Decision{}, fmt.Errorf("unknown verb `%s`", s.Op)
}

// answerOf returns a decision, or the name of an error of the SDK and whether the request was charged. A decision of a program
// itself that is not of Redis is an error.
func answerOf(d sluicegate.Decision, err error, elsewhere bool) (any, error) {
	var known *sluicegate.Error
	if errors.As(err, &known) {
		return map[string]string{"error": known.Name, "charged": string(known.Charged)}, nil
	}
	if err == nil && !elsewhere && d.Mode != sluicegate.ModeStore && d.Mode != sluicegate.ModeRemembered {
		err = fmt.Errorf("decided in mode `%s`", d.Mode)
	}
	return fieldsOf(d), err
}

func fieldsOf(d sluicegate.Decision) answer {
	a := answer{d.Allowed, d.Granted, d.Wait.Microseconds(), d.Limit, d.Remaining, nil, d.ResetAfter.Microseconds(), d.Rule}
	if d.Allowed || d.CanRetry {
		retry := d.RetryAfter.Microseconds()
		a.RetryAfter = &retry
	}
	return a
}
