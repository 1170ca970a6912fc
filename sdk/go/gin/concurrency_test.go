package sggin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggin "github.com/sluicegate/sluicegate/sdk/go/gin"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestPermitsOfGinAreHeldAsAllHold(t *testing.T) {
	gin.SetMode(gin.TestMode)
	guardtest.CheckConcurrency(t, func(limiter *sluicegate.Limiter, served http.Handler, options ...sghttp.Option) http.Handler {
		router := gin.New()
		router.Use(sggin.Concurrency(limiter, options...))
		router.GET("/orders", gin.WrapH(served))
		return router
	})
}

func TestAMiddlewareOfGinOutsideOfThePermitHasTheContextOfTheRequest(t *testing.T) {
	gin.SetMode(gin.TestMode)
	router := gin.New()
	router.Use(func(c *gin.Context) {
		c.Next()
		if err := c.Request.Context().Err(); err != nil {
			t.Error(err)
		}
	})
	router.GET("/orders", sggin.Concurrency(guardtest.Permits(t, 1).Policy("reject")), func(c *gin.Context) { c.Status(http.StatusNoContent) })
	r, w := httptest.NewRequest("GET", "/orders", nil), httptest.NewRecorder()
	if router.ServeHTTP(w, r); w.Code != http.StatusNoContent {
		t.Error(w.Code)
	}
}
