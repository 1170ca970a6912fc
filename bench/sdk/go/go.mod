module github.com/sluicegate/sluicegate/bench/sdk/go

go 1.24

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/redis/go-redis/v9 v9.22.0
	github.com/sluicegate/sluicegate/sdk/go v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace github.com/sluicegate/sluicegate/sdk/go => ../../../sdk/go
