package sggin_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggin "github.com/sluicegate/sluicegate/sdk/go/gin"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit/guardtest"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestTheMiddlewareOfGinHoldsWhatAllHold(t *testing.T) {
	gin.SetMode(gin.TestMode)
	guardtest.Check(t, func(limiter *sluicegate.Limiter, options ...sghttp.Option) http.Handler {
		router := gin.New()
		router.Use(sggin.Middleware(limiter, options...))
		router.GET("/orders", func(c *gin.Context) { c.String(http.StatusOK, guardtest.Served) })
		return router
	})
}
