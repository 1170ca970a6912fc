// An HTTP server whose requests are decided in Redis, by the policy `orders` that a Sluicegate server publishes there.
//
//	REDIS=localhost:6379 go run ./examples/http
//	curl -i -H 'X-Tenant: acme' localhost:8000/orders
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	gate, err := sluicegate.Direct(rdb, sluicegate.App("shop"))
	if err == nil {
		err = gate.Require(context.Background(), "orders") // a wrong name is found now, and not by the first request
	}
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	server := &http.Server{Addr: ":8000", Handler: routes(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Print(server.ListenAndServe())
}

// routes gives each tenant the budget of the policy `orders`, and tells a balancer whether requests are decided.
func routes(gate *sluicegate.Gate) http.Handler {
	guard := sghttp.Middleware(gate.Policy("orders"), sghttp.Header("X-Tenant"))
	mux := http.NewServeMux()
	mux.Handle("/orders", guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ordered")
	})))
	mux.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		if health := gate.Health(r.Context(), "orders"); health.Status == sluicegate.StatusDown {
			http.Error(w, string(health.Status), http.StatusServiceUnavailable)
		}
	})
	return mux
}
