package sggin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// Concurrency limits how many requests of routes are served at a time. It works as [sghttp.Concurrency] does, and has its options: a request
// holds its permit until the handlers behind have returned.
func Concurrency(limiter *sluicegate.Limiter, options ...sghttp.Option) gin.HandlerFunc {
	guard := sghttp.Concurrency(limiter, options...)
	return func(c *gin.Context) {
		passed, outer := false, c.Request.Context()
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
			c.Request = c.Request.WithContext(outer) // that of the handlers ends
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
