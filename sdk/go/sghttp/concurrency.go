package sghttp

import (
	"net/http"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/inflight"
)

// MaxWait lets requests wait for a permit, for so long at most and no longer than their client does; in whole milliseconds. It needs a gate of
// [sluicegate.Direct] or [sluicegate.Remote], and a `queue` in the policy: see [sluicegate.Limiter.AcquireWithin]. Default: a request that finds no permit is refused at once,
// or waits as `overflow: queue` of the policy has it. For [Concurrency]; [Middleware] has no permits to wait for.
func MaxWait(wait time.Duration) Option { return func(g *guard) { g.maxWait = wait } }

// Concurrency limits how many requests are served at a time, by a limiter with a `concurrency` rule. Each request that passes holds a
// permit until its handler returns, also if that panics, the client goes away, or the answer is a stream. The options and the answers are
// those of [Middleware].
//
// The permit is renewed while the handler runs. If it is lost, because the server or Redis did not answer for a ttl, the context of the request ends,
// and its context.Cause is [sluicegate.ErrNotHeld]. If the program ends, the permit lapses after its ttl.
//
// Put it inside of middlewares that answer in place of a handler, such as http.TimeoutHandler: outside of it, the permit is free
// when that answers, although the handler still runs. A connection that the handler hijacks and hands to another goroutine holds no permit
// after the handler has returned.
//
// The end of a request waits up to 100 ms for the release of its permit, which takes no longer than the deadline of the gate. A release that
// fails leaves the permit to its ttl.
func Concurrency(limiter *sluicegate.Limiter, options ...Option) func(http.Handler) http.Handler {
	g := guardOf(limiter, options)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, budget, ok := g.budgetOf(w, r)
			if !ok {
				return
			}
			permit, d, err := inflight.Acquire(ctx, budget, g.cost(r), g.maxWait)
			work, release := inflight.Hold(r.Context(), permit)
			defer release()
			if g.pass(w, r, d, err) {
				next.ServeHTTP(w, r.WithContext(work))
			}
		})
	}
}
