// A gRPC service, here that of health checks, whose calls are decided in Redis by the policy `calls`.
//
//	REDIS=localhost:6379 go run .
package main

import (
	"log"
	"net"
	"os"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggrpc "github.com/sluicegate/sluicegate/sdk/go/grpc"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	gate, err := sluicegate.Direct(rdb, sluicegate.App("shop"))
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	listener, err := net.Listen("tcp", ":9000")
	if err != nil {
		log.Print(err)
		return
	}
	log.Print(service(gate).Serve(listener))
}

// service gives each tenant the budget of the policy `calls`; a refused call fails with ResourceExhausted.
func service(gate *sluicegate.Gate) *grpc.Server {
	calls := gate.Policy("calls")
	server := grpc.NewServer(
		grpc.UnaryInterceptor(sggrpc.Unary(calls, sggrpc.Metadata("tenant"))),
		grpc.StreamInterceptor(sggrpc.Stream(calls, sggrpc.Metadata("tenant"))))
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server
}
