package sgecho_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sgecho "github.com/sluicegate/sluicegate/sdk/go/echo"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestTheMiddlewareOfEchoHoldsWhatAllHold(t *testing.T) {
	guardtest.Check(t, func(limiter *sluicegate.Limiter, options ...sghttp.Option) http.Handler {
		router := echo.New()
		router.Use(sgecho.Middleware(limiter, options...))
		router.GET("/orders", func(c echo.Context) error { return c.String(http.StatusOK, guardtest.Served) })
		return router
	})
}
