package sgtest

import (
	"context"
	"sync"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

// Outcome is what a scripted gate answers to a request. Make it with [Allow], [Refuse] or [Fail].
type Outcome struct {
	decision sluicegate.Decision
	err      error
}

// Allow lets a request pass, with so many permits left of a limit. The cost of the request is granted.
func Allow(limit, remaining int64) Outcome {
	return Outcome{decision: sluicegate.Decision{Allowed: true, Limit: limit, Remaining: remaining}}
}

// Refuse refuses a request, which may pass after a time; never if that is below 0.
func Refuse(retryAfter time.Duration) Outcome {
	return Outcome{decision: sluicegate.Decision{CanRetry: retryAfter >= 0, RetryAfter: max(retryAfter, 0)}}
}

// Fail leaves a request without a decision: [sluicegate.ErrNotCharged], for example.
func Fail(err error) Outcome { return Outcome{err: err} }

// Script returns a gate that answers requests with the outcomes, one after the other. It fails the test if there are more
// requests than outcomes, or fewer when the test ends. No rules are needed, and no time passes: Wait does not sleep after a
// Refuse, but takes the next outcome.
func Script(t testing.TB, outcomes ...Outcome) *sluicegate.Gate {
	t.Helper()
	var mu sync.Mutex
	next := 0
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if next < len(outcomes) {
			t.Errorf("sgtest: %d of %d outcomes were asked for", next, len(outcomes))
		}
	})
	return sluicegate.ByFunc(func(_ context.Context, r sluicegate.Request) (sluicegate.Decision, error) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(outcomes) {
			t.Errorf("sgtest: no outcome is left for a %s of `%s` under `%s`", r.Verb, r.Key, r.Policy)
			return sluicegate.Decision{}, sluicegate.ErrNotCharged
		}
		outcome := outcomes[next]
		next++
		if outcome.err != nil {
			return sluicegate.Decision{}, outcome.err
		}
		d := outcome.decision
		d.Policy, d.Mode = r.Policy, sluicegate.ModeStore
		if d.Allowed {
			d.Granted = r.Cost
		}
		return d, nil
	})
}
