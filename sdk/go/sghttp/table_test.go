package sghttp_test

import (
	"io"
	"net/http"
	"testing"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestTheMiddlewareOfNetHTTPHoldsWhatAllHold(t *testing.T) {
	guardtest.Check(t, func(limiter *sluicegate.Limiter, options ...sghttp.Option) http.Handler {
		mux := http.NewServeMux()
		serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, guardtest.Served) })
		mux.Handle("GET /orders", sghttp.Middleware(limiter, options...)(serve))
		return mux
	})
}
