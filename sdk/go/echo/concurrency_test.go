package sgecho_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sgecho "github.com/sluicegate/sluicegate/sdk/go/echo"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestPermitsOfEchoAreHeldAsAllHold(t *testing.T) {
	guardtest.CheckConcurrency(t, func(limiter *sluicegate.Limiter, served http.Handler, options ...sghttp.Option) http.Handler {
		router := echo.New()
		router.Use(sgecho.Concurrency(limiter, options...))
		router.GET("/orders", echo.WrapHandler(served))
		return router
	})
}

func TestAnErrorOfAHandlerOfEchoIsAnsweredAndItsPermitIsFree(t *testing.T) {
	reject, router := guardtest.Permits(t, 1).Policy("reject"), echo.New()
	failed := errors.New("no")
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			if !errors.Is(err, failed) || c.Request().Context().Err() != nil {
				t.Error(err, c.Request().Context().Err())
			}
			return err
		}
	}, sgecho.Concurrency(reject))
	router.GET("/orders", func(echo.Context) error { return failed })
	r, w := httptest.NewRequest("GET", "/orders", nil), httptest.NewRecorder()
	r.RemoteAddr = "203.0.113.7:1"
	if router.ServeHTTP(w, r); w.Code != http.StatusInternalServerError || guardtest.Remaining(t, reject, "203.0.113.7") != 1 {
		t.Error(w.Code)
	}
}
