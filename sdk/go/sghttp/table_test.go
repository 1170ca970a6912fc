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

// chiMiddlewares is Middlewares of chi v5, whose Use and With take such functions, and whose Chain puts the first outermost.
type chiMiddlewares []func(http.Handler) http.Handler

func (all chiMiddlewares) handler(endpoint http.Handler) http.Handler {
	for i := len(all) - 1; i >= 0; i-- {
		endpoint = all[i](endpoint)
	}
	return endpoint
}

// TestTheMiddlewareOfChiHoldsWhatAllHold is a test against the interface of chi, which is no dependency of this module.
func TestTheMiddlewareOfChiHoldsWhatAllHold(t *testing.T) {
	guardtest.Check(t, func(limiter *sluicegate.Limiter, options ...sghttp.Option) http.Handler {
		seen := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(r.Context())) })
		}
		serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, guardtest.Served) })
		return chiMiddlewares{seen, sghttp.Middleware(limiter, options...), seen}.handler(serve)
	})
}
