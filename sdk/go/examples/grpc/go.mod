module github.com/sluicegate/sluicegate/sdk/go/examples/grpc

go 1.24.0

require (
	github.com/sluicegate/sluicegate/sdk/go v0.1.0
	google.golang.org/grpc v1.76.0
)

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250804133106-a7a43d27e69b // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0
	github.com/sluicegate/sluicegate/sdk/go/grpc v0.1.0
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/net v0.42.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
	golang.org/x/text v0.27.0 // indirect
)

replace github.com/sluicegate/sluicegate/sdk/go => ../..

replace github.com/sluicegate/sluicegate/sdk/go/grpc => ../../grpc
