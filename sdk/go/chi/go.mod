module github.com/sluicegate/sluicegate/sdk/go/chi

go 1.24

require (
	github.com/go-chi/chi/v5 v5.2.3
	github.com/sluicegate/sluicegate/sdk/go v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace github.com/sluicegate/sluicegate/sdk/go => ../
