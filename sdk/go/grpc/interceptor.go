// Package sggrpc guards services of gRPC, and makes clients wait for their turn: [Unary] and [Stream] limit how many calls are let in,
// [ConcurrencyUnary] and [ConcurrencyStream] how many are served at a time.
//
// A refused call gets ResourceExhausted, and Unavailable where nobody could decide and the policy denies, or not in time. A
// call without a decision gets the code of its context if that has ended; Unavailable if Redis or the server did not answer, the
// server failed, or no policies are published; InvalidArgument if it has no key; and Internal for mistakes of the program, such
// as an unknown policy. The error itself is not sent to clients.
package sggrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/inflight"
	"github.com/sluicegate/sluicegate/sdk/go/internal/keyless"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// Option changes how an interceptor works.
type Option func(*guard)

type guard struct {
	limiter  *sluicegate.Limiter
	key      func(ctx context.Context, method string) string
	metadata string // the metadata that the key is, if it is one
	lacks    string // what a call without a key lacks
	cost     int64
	maxWait  time.Duration // for a permit
	shared   bool          // calls without a key share a budget
}

// Key sets the function that returns the key of a call; "" if it has none: see [Shared]. Default: the full name of the
// method. Of Key and [Metadata] the last one wins.
func Key(of func(ctx context.Context, method string) string) Option {
	return func(g *guard) { g.key, g.metadata, g.lacks = of, "", "a key" }
}

// Metadata takes the key from the metadata of a call. A call without it gets InvalidArgument, unless [Shared] is given. So does
// a call with two such values: a proxy may have added the true one behind that of the client.
func Metadata(name string) Option {
	return func(g *guard) {
		g.lacks = "metadata " + name
		g.metadata, g.key = name, func(ctx context.Context, _ string) string {
			if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
				return values[0]
			}
			return ""
		}
	}
}

// Shared has all calls without a key share one budget. By default such a call gets InvalidArgument and is not charged.
func Shared() Option { return func(g *guard) { g.shared = true } }

// Cost sets the cost of a call in permits. Default: 1.
func Cost(permits int64) Option { return func(g *guard) { g.cost = permits } }

func guardOf(limiter *sluicegate.Limiter, options []Option) *guard {
	g := &guard{limiter: limiter, cost: 1, maxWait: inflight.NoWait, lacks: "a method", key: func(_ context.Context, method string) string { return method }}
	for _, option := range options {
		option(g)
	}
	return g
}

// of returns the context, the limiter and the key of a call. Without a key, unless calls share it, the limiter has no decision.
func (g *guard) of(ctx context.Context, method string) (context.Context, *sluicegate.Limiter, string) {
	key := sghttp.KeyOf(g.key(ctx, method))
	switch {
	case key != "":
		return ctx, g.limiter, key
	case g.shared:
		return ctx, g.limiter.Shared(), ""
	default:
		return keyless.With(ctx, "call without "+g.lacks, "sggrpc.Shared()"), g.limiter, ""
	}
}

// budgetOf returns the budget of a call, and the context to ask with, or the status of a call whose key is not clear.
func (g *guard) budgetOf(ctx context.Context, method string) (context.Context, inflight.Budget, error) {
	if g.metadata != "" && len(metadata.ValueFromIncomingContext(ctx, g.metadata)) > 1 {
		return nil, inflight.Budget{}, status.Errorf(codes.InvalidArgument, "%s: is given twice", g.metadata)
	}
	callCtx, limiter, key := g.of(ctx, method)
	return callCtx, inflight.Budget{Limiter: limiter, Key: key}, nil
}

// allow returns nil if a call passes, after the decision's pause.
func (g *guard) allow(ctx context.Context, method string) error {
	callCtx, budget, err := g.budgetOf(ctx, method)
	if err != nil {
		return err
	}
	d, err := budget.Limiter.AllowN(callCtx, budget.Key, g.cost)
	return pass(ctx, d, err)
}

// pass returns nil if a call passes by a decision, after its pause.
func pass(ctx context.Context, d sluicegate.Decision, err error) error {
	if err != nil {
		return undecided(ctx, err)
	}
	if !d.Allowed {
		return refused(d)
	}
	if err := d.Sleep(ctx); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// refused returns ResourceExhausted (Unavailable if Redis did not decide, and the policy denies or there was no time), with
// RetryInfo if the call can pass later.
func refused(d sluicegate.Decision) error {
	code := codes.ResourceExhausted
	if d.Mode == sluicegate.ModeDeny || d.Mode == sluicegate.ModeShed {
		code = codes.Unavailable
	}
	s := status.New(code, d.Err().Error())
	if !d.CanRetry {
		return s.Err()
	}
	if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
		s = detailed
	}
	return s.Err()
}

// undecided returns the status of a call without a decision. The cause is for the program, not for the client.
func undecided(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, sluicegate.ErrNotCharged), errors.Is(err, sluicegate.ErrPerhapsCharged), errors.Is(err, sluicegate.ErrInterrupted), errors.Is(err, sluicegate.ErrServer),
		errors.Is(err, sluicegate.ErrNothingPublished):
		return status.Error(codes.Unavailable, "no decision about the rate limit")
	case errors.Is(err, sluicegate.ErrKeyEmpty):
		return status.Error(codes.InvalidArgument, "the call has no key of a rate limit")
	default:
		return status.Error(codes.Internal, "no decision about the rate limit")
	}
}

// Unary guards calls with one request and one answer: what is refused gets ResourceExhausted and RetryInfo.
func Unary(limiter *sluicegate.Limiter, options ...Option) grpc.UnaryServerInterceptor {
	g := guardOf(limiter, options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := g.allow(ctx, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
}

// Stream guards streams, each once as it begins.
func Stream(limiter *sluicegate.Limiter, options ...Option) grpc.StreamServerInterceptor {
	g := guardOf(limiter, options)
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := g.allow(stream.Context(), info.FullMethod); err != nil {
			return err
		}
		return handler(service, stream)
	}
}

// WaitUnary makes the calls of a client wait for their turn, as long as their context lasts. A call that cannot have its
// turn in time gets ResourceExhausted at once, and is not sent.
func WaitUnary(limiter *sluicegate.Limiter, options ...Option) grpc.UnaryClientInterceptor {
	g := guardOf(limiter, options)
	return func(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		callCtx, limiter, key := g.of(ctx, method)
		err := limiter.WaitN(callCtx, key, g.cost)
		var limited *sluicegate.LimitedError
		if errors.As(err, &limited) {
			return refused(limited.Decision)
		}
		if err != nil {
			return undecided(ctx, err)
		}
		return invoke(ctx, method, request, answer, connection, opts...)
	}
}
