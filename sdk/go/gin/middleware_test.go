package sggin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggin "github.com/sluicegate/sluicegate/sdk/go/gin"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestRoutesOfGinAreGuarded(t *testing.T) {
	gin.SetMode(gin.TestMode)
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.TokenBucket(1, 10*time.Second)))
	router, served := gin.New(), 0
	router.Use(sggin.Middleware(gate.Policy("orders"), sggin.Header("X-Tenant")))
	router.GET("/", func(c *gin.Context) { served++; c.String(http.StatusOK, "hello") })
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
