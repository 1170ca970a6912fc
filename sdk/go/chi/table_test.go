// Package sgchi_test has the tests of chi, which takes the middleware of sghttp as it is: there is no package for it.
package sgchi_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func guarded(limiter *sluicegate.Limiter, options ...sghttp.Option) http.Handler {
	r := chi.NewRouter()
	r.Use(sghttp.Middleware(limiter, options...))
	r.Get("/orders", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, guardtest.Served) })
	return r
}

func TestTheMiddlewareOfChiHoldsWhatAllHold(t *testing.T) { guardtest.Check(t, guarded) }

func TestTheFirstRequestsOfAProcessWithChiAdmitExactlyTheLimit(t *testing.T) {
	guardtest.ColdHTTP(t, guarded)
}
