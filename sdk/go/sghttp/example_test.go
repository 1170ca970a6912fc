package sghttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func ExampleMiddleware() {
	gate, err := sluicegate.InMemory(sluicegate.Rules("orders", sluicegate.PerHour(1)))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	guard := sghttp.Middleware(gate.Policy("orders"), sghttp.Header("X-Tenant"))
	mux := http.NewServeMux()
	mux.Handle("/orders", guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ordered") })))

	for range 2 {
		request, answer := httptest.NewRequest("GET", "/orders", nil), httptest.NewRecorder()
		request.Header.Set("X-Tenant", "acme")
		mux.ServeHTTP(answer, request)
		fmt.Printf("%d %q\n", answer.Code, answer.Header().Get("Retry-After"))
	}
	// Output:
	// 200 ""
	// 429 "3600"
}

func ExampleConcurrency() {
	gate, err := sluicegate.InMemory(sluicegate.Rules("reports", sluicegate.Concurrency(1, time.Minute)))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	reports := sghttp.Concurrency(gate.Policy("reports"))
	ask := func(h http.Handler) int {
		answer := httptest.NewRecorder()
		reports(h).ServeHTTP(answer, httptest.NewRequest("GET", "/reports", nil))
		return answer.Code
	}
	quick := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fmt.Println("beside another:", ask(quick)) })

	fmt.Println("alone:", ask(slow))
	fmt.Println("afterwards:", ask(quick))
	// Output:
	// beside another: 429
	// alone: 200
	// afterwards: 200
}
