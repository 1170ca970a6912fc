package sggrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/inflight"
)

// MaxWait lets calls wait for a permit, for so long at most and no longer than their deadline; in whole milliseconds. It needs a gate of
// [sluicegate.Direct] or [sluicegate.Remote], and a `queue` in the policy: see [sluicegate.Limiter.AcquireWithin]. Default: a call that finds no permit is refused at once,
// or waits as `overflow: queue` of the policy has it. For [ConcurrencyUnary] and [ConcurrencyStream]; the other interceptors have no permits to wait for.
func MaxWait(wait time.Duration) Option { return func(g *guard) { g.maxWait = wait } }

// ConcurrencyUnary limits how many calls with one request and one answer are served at a time, by a limiter with a `concurrency` rule. Each
// call that passes holds a permit until its handler returns, also if that panics or the client goes away. The options and the answers are those of [Unary].
//
// The permit is renewed while the handler runs. If it is lost, because the server or Redis did not answer for a ttl, the context of the call ends,
// and its context.Cause is [sluicegate.ErrNotHeld]. If the program ends, the permit lapses after its ttl.
//
// The answer waits up to 100 ms for the release of the permit, which takes no longer than the deadline of the gate. A release that fails
// leaves the permit to its ttl.
func ConcurrencyUnary(limiter *sluicegate.Limiter, options ...Option) grpc.UnaryServerInterceptor {
	g := guardOf(limiter, options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		work, release, err := g.hold(ctx, info.FullMethod)
		defer release()
		if err != nil {
			return nil, err
		}
		return handler(work, request)
	}
}

// ConcurrencyStream limits how many streams are open at a time, as [ConcurrencyUnary] does calls: each holds a permit until its handler returns.
func ConcurrencyStream(limiter *sluicegate.Limiter, options ...Option) grpc.StreamServerInterceptor {
	g := guardOf(limiter, options)
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		work, release, err := g.hold(stream.Context(), info.FullMethod)
		defer release()
		if err != nil {
			return err
		}
		return handler(service, heldStream{stream, work})
	}
}

// hold acquires a permit for a call. It returns the context for the handler, and a release that is to be called always; the error is the
// status of a call that does not pass.
func (g *guard) hold(ctx context.Context, method string) (work context.Context, release func(), err error) {
	callCtx, budget, err := g.budgetOf(ctx, method)
	if err != nil {
		return ctx, func() {}, err
	}
	permit, d, err := inflight.Acquire(callCtx, budget, g.cost, g.maxWait)
	work, release = inflight.Hold(ctx, permit)
	return work, release, pass(ctx, d, err)
}

// heldStream is a stream whose context ends when its permit is lost.
type heldStream struct {
	grpc.ServerStream
	work context.Context
}

// Context returns the context.
func (s heldStream) Context() context.Context { return s.work }
