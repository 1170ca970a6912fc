package sghttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

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
