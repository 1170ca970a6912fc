package sggrpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggrpc "github.com/sluicegate/sluicegate/sdk/go/grpc"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
)

const check, watch = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"

// during has a handler call a function.
func during(f func(ctx context.Context)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		f(ctx)
		return handler(ctx, request)
	}
}

func TestCallsAreServedAtMostSoManyAtATime(t *testing.T) {
	for _, c := range []struct {
		name    string
		limiter *sluicegate.Limiter
		code    codes.Code
		retry   time.Duration
	}{
		{"the second call is refused", guardtest.Permits(t, 1).Policy("reject"), codes.ResourceExhausted, time.Minute},
		{"shadow passes", guardtest.Permits(t, 1).Policy("shadow"), codes.OK, 0},
		{"a response of HTTP is none of gRPC", guardtest.Permits(t, 1).Policy("response"), codes.ResourceExhausted, time.Minute},
		{"an unknown policy is a mistake of the program", guardtest.Permits(t, 1).Policy("none"), codes.Internal, 0},
		{"nobody decides in time", guardtest.Answers(sluicegate.Decision{Mode: sluicegate.ModeShed, CanRetry: true, RetryAfter: time.Second}, nil), codes.Unavailable, time.Second},
	} {
		entered, leave, first := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
		client := serve(t, []grpc.ServerOption{grpc.ChainUnaryInterceptor(sggrpc.ConcurrencyUnary(c.limiter), during(func(context.Context) {
			entered <- struct{}{}
			<-leave
		}))})
		go func() {
			defer close(first)
			_, _ = client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		}()
		select {
		case <-entered:
		case <-first:
		}
		if c.code == codes.OK {
			close(leave)
		}
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		if c.code != codes.OK {
			close(leave)
		}
		<-first
		if s := status.Convert(err); s.Code() != c.code || retryOf(s) != c.retry {
			t.Errorf("%s: %v, retry in %v", c.name, err, retryOf(s))
		}
	}
}

func TestACallHoldsItsPermitUntilItsHandlerReturns(t *testing.T) {
	reject := guardtest.Permits(t, 1).Policy("reject")
	guard := sggrpc.ConcurrencyUnary(reject)
	for name, handler := range map[string]func(){"return": func() {}, "panic": func() { panic("no") }} {
		func() {
			defer func() { _ = recover() }()
			_, err := guard(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: check}, func(context.Context, any) (any, error) {
				if remaining := guardtest.Remaining(t, reject, check); remaining != 0 {
					t.Errorf("%s: %d remain", name, remaining)
				}
				handler()
				return nil, nil
			})
			if err != nil {
				t.Error(name, err)
			}
		}()
		if remaining := guardtest.Remaining(t, reject, check); remaining != 1 {
			t.Errorf("%s: %d remain", name, remaining)
		}
	}
}

// The stream of Watch ends when its client goes away.
func TestAStreamHoldsItsPermitUntilItsClientGoesAway(t *testing.T) {
	reject := guardtest.Permits(t, 1).Policy("reject")
	client := serve(t, []grpc.ServerOption{grpc.StreamInterceptor(sggrpc.ConcurrencyStream(reject))})
	open := func(ctx context.Context) error {
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := open(context.Background()); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	cancel()
	testkit.Eventually(t, "the permit is held still", func() bool { return guardtest.Remaining(t, reject, watch) == 1 })
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func TestAStreamGetsToKnowThatItsPermitIsLost(t *testing.T) {
	gate, ctx := guardtest.Permits(t, 1), context.Background()
	reject, cause := gate.Policy("reject"), make(chan error)
	go func() {
		err := sggrpc.ConcurrencyStream(reject)(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: watch}, func(_ any, s grpc.ServerStream) error {
			<-s.Context().Done()
			cause <- context.Cause(s.Context())
			return nil
		})
		cause <- err
	}()
	testkit.Eventually(t, "nothing is renewed", func() bool { return gate.Clock.Sleepers() == 1 })
	if _, err := reject.Reset(ctx, watch); err != nil {
		t.Fatal(err)
	}
	gate.Clock.Advance(20 * time.Second)
	if lost, err := <-cause, <-cause; lost != sluicegate.ErrNotHeld || err != nil {
		t.Error(lost, err)
	}
}

func TestACallWithoutItsKeyGetsNoPermit(t *testing.T) {
	guard := sggrpc.ConcurrencyUnary(guardtest.Permits(t, 1).Policy("reject"), sggrpc.Metadata("tenant"))
	_, err := guard(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: check}, func(context.Context, any) (any, error) { return nil, nil })
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

func TestACallWaitsForItsPermit(t *testing.T) {
	var waited time.Duration
	pool := sluicegate.ByFunc(func(_ context.Context, r sluicegate.Request) (sluicegate.Decision, error) {
		waited = max(waited, r.MaxWait)
		return sluicegate.Decision{Allowed: true}, nil
	}).Policy("pool")
	client := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(sggrpc.ConcurrencyUnary(pool, sggrpc.MaxWait(time.Minute)))})
	if _, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil || waited != time.Minute {
		t.Error(waited, err)
	}
}
