package sggrpc_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggrpc "github.com/sluicegate/sluicegate/sdk/go/grpc"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

// serve starts a service behind interceptors, and gives a client of it.
func serve(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(server...)
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func newGate(t *testing.T) *sgtest.Gate {
	return sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.TokenBucket(1, 10*time.Second)))
}

func TestCallsAreGuarded(t *testing.T) {
	orders := newGate(t).Policy("orders")
	client := serve(t, []grpc.ServerOption{
		grpc.UnaryInterceptor(sggrpc.Unary(orders, sggrpc.Metadata("tenant"))),
		grpc.StreamInterceptor(sggrpc.Stream(orders, sggrpc.Metadata("tenant"))),
	})
	for _, c := range []struct {
		tenant string
		code   codes.Code
	}{{"a", codes.OK}, {"a", codes.ResourceExhausted}, {"b", codes.OK}} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "tenant", c.tenant)
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		s := status.Convert(err)
		if s.Code() != c.code {
			t.Fatalf("%+v: %v", c, err)
		}
		if c.code == codes.OK {
			continue
		}
		info, ok := s.Details()[0].(*errdetails.RetryInfo)
		if !ok || info.RetryDelay.AsDuration() != 10*time.Second {
			t.Errorf("%v", s.Details())
		}
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "tenant", "a")
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestAClientWaitsForItsTurn(t *testing.T) {
	gate := newGate(t)
	client := serve(t, nil, grpc.WithUnaryInterceptor(sggrpc.WaitUnary(gate.Policy("orders"))))
	if _, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := client.Check(soon, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		done <- err
	}()
	for gate.Clock.Sleepers() == 0 {
		time.Sleep(time.Millisecond)
	}
	gate.Clock.Advance(10 * time.Second)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// retryOf returns when a call that was refused may be sent again; 0 if its status does not have that.
func retryOf(s *status.Status) time.Duration {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return 0
}

// TestTheInterceptorsHoldWhatAllHold has the claims of the middlewares that gRPC has words for.
func TestTheInterceptorsHoldWhatAllHold(t *testing.T) {
	for _, c := range []struct {
		name    string
		limiter *sluicegate.Limiter
		code    codes.Code
		retry   time.Duration
	}{
		{"the second call is refused", guardtest.Policy(t, "reject"), codes.ResourceExhausted, 10 * time.Second},
		{"nobody decides and the policy denies", guardtest.Gone(t), codes.Unavailable, time.Second},
		{"nobody decides in time", guardtest.Answers(sluicegate.Decision{Mode: sluicegate.ModeShed, CanRetry: true, RetryAfter: time.Second}, nil), codes.Unavailable, time.Second},
		{"nothing is published", guardtest.Answers(sluicegate.Decision{}, sluicegate.ErrNothingPublished), codes.Unavailable, 0},
		{"shadow passes", guardtest.Policy(t, "shadow"), codes.OK, 0},
		{"a response of HTTP is none of gRPC", guardtest.Policy(t, "response"), codes.ResourceExhausted, 10 * time.Second},
		{"an unknown policy is a mistake of the program", sgtest.NewGate(t).Policy("none"), codes.Internal, 0},
	} {
		client := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(sggrpc.Unary(c.limiter))})
		_, _ = client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		// Whom a call says that it is for does not change the key.
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-forwarded-for", "198.51.100.1")
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		s := status.Convert(err)
		if s.Code() != c.code {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if retry := retryOf(s); retry != c.retry {
			t.Errorf("%s: retry in %v, expected %v", c.name, retry, c.retry)
		}
	}
}

func TestACallWithoutItsKeyIsLoggedForDebuggingOnly(t *testing.T) {
	for want, option := range map[string]sggrpc.Option{
		"call without metadata tenant is not decided; sggrpc.Shared() would let such requests share a budget": sggrpc.Metadata("tenant"),
		"call without a key is not decided; sggrpc.Shared() would let such requests share a budget":           sggrpc.Key(func(context.Context, string) string { return "" }),
	} {
		log := &strings.Builder{}
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		orders := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)), sluicegate.Logger(logger)).Policy("orders")
		guard := sggrpc.Unary(orders, option)
		_, err := guard(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(log.String(), "level=DEBUG msg=\""+want+"\" policy=orders\n") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%v, %s", err, log)
		}
	}
}

func TestTwoValuesOfTheKeyAreRefused(t *testing.T) {
	orders := newGate(t).Policy("orders")
	client := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(sggrpc.Unary(orders, sggrpc.Metadata("tenant")))})
	ctx := metadata.AppendToOutgoingContext(context.Background(), "tenant", "forged", "tenant", "real")
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
}

func TestACallWithoutItsKeyIsRefusedAndChargesNothing(t *testing.T) {
	orders := newGate(t).Policy("orders")
	for _, c := range []struct {
		options []sggrpc.Option
		codes   []codes.Code
	}{
		{[]sggrpc.Option{sggrpc.Metadata("tenant")}, []codes.Code{codes.InvalidArgument, codes.InvalidArgument}},
		{[]sggrpc.Option{sggrpc.Metadata("tenant"), sggrpc.Shared()}, []codes.Code{codes.OK, codes.ResourceExhausted}},
	} {
		client := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(sggrpc.Unary(orders, c.options...))})
		for i, want := range c.codes {
			if _, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}); status.Code(err) != want {
				t.Errorf("call %d: %v, expected %v", i, err, want)
			}
		}
	}
}
