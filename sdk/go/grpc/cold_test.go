package sggrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggrpc "github.com/sluicegate/sluicegate/sdk/go/grpc"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
)

func TestTheFirstCallsOfAProcessAdmitExactlyTheLimit(t *testing.T) {
	guardtest.Cold(t, func(t *testing.T, limiter *sluicegate.Limiter) func() string {
		client := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(sggrpc.Unary(limiter))})
		return func() string {
			_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
			switch code := status.Code(err); code {
			case codes.OK:
				return "passed"
			case codes.ResourceExhausted:
				return "refused"
			default:
				return code.String()
			}
		}
	})
}
