// Agree decides the steps that sdk/agree/agree.py sends, so that they can be compared with the answers of a server.
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

// step is a line of the input: where Redis is, or a request.
type step struct {
	Redis   string `json:"redis"`
	NowUS   int64  `json:"now_us"`
	Op      string `json:"op"`
	Policy  string `json:"policy"`
	Key     string `json:"key"`
	Cost    int64  `json:"cost"`
	MaxWait int64  `json:"max_wait_us"`
	ID      string `json:"id"`
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
	for lines.Scan() {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return err
		}
		now.us.Store(s.NowUS)
		var said any = struct{}{}
		if gate == nil {
			client := redis.NewClient(&redis.Options{Addr: s.Redis, ContextTimeoutEnabled: true})
			defer client.Close()
			made, err := sluicegate.Direct(client, sluicegate.WithClock(&now), sluicegate.Deadline(deadline))
			if err != nil {
				return err
			}
			defer made.Close()
			gate = made
		} else {
			var err error
			if said, err = answerOf(decide(gate.Policy(s.Policy), s)); err != nil {
				return err
			}
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return lines.Err()
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
	case "release":
		return l.Release(ctx, s.Key, s.ID)
	case "renew":
		return l.Renew(ctx, s.Key, s.ID)
	}
	return sluicegate.Decision{}, fmt.Errorf("unknown verb `%s`", s.Op)
}

// answerOf says a decision, or the name of an error of the SDK. A decision that is not of Redis is an error.
func answerOf(d sluicegate.Decision, err error) (any, error) {
	var known *sluicegate.Error
	if errors.As(err, &known) {
		return map[string]string{"error": known.Name}, nil
	}
	if err != nil {
		return nil, err
	}
	if d.Mode != sluicegate.ModeStore && d.Mode != sluicegate.ModeRemembered {
		return nil, fmt.Errorf("decided in mode `%s`", d.Mode)
	}
	a := answer{d.Allowed, d.Granted, d.Wait.Microseconds(), d.Limit, d.Remaining, nil, d.ResetAfter.Microseconds(), d.Rule}
	if d.Allowed || d.CanRetry {
		retry := d.RetryAfter.Microseconds()
		a.RetryAfter = &retry
	}
	return a, nil
}
