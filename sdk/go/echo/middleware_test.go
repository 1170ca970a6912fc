package sgecho_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sgecho "github.com/sluicegate/sluicegate/sdk/go/echo"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestRoutesOfEchoAreGuarded(t *testing.T) {
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.TokenBucket(1, 10*time.Second)))
	router, served := echo.New(), 0
	router.Use(sgecho.Middleware(gate.Policy("orders"), sgecho.Header("X-Tenant")))
	router.GET("/", func(c echo.Context) error { served++; return c.String(http.StatusOK, "hello") })
	for _, c := range []struct {
		tenant string
		status int
	}{{"a", 200}, {"a", 429}, {"b", 200}, {"", 400}, {"", 400}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Tenant", c.tenant)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		if w.Code != c.status || (w.Header().Get("RateLimit") == "") != (c.status == 400) || c.status == 429 && w.Header().Get("Retry-After") != "10" {
			t.Errorf("%+v: %d, %v", c, w.Code, w.Header())
		}
	}
	if served != 2 {
		t.Errorf("served %d", served)
	}
}
