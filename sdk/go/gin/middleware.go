// Package sggin guards routes of gin.
package sggin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// Middleware guards routes by a limiter. Its options are those of sghttp: what is refused gets 429 with header fields and
// problem+json, and the handlers behind do not run.
func Middleware(limiter *sluicegate.Limiter, options ...sghttp.Option) gin.HandlerFunc {
	guard := sghttp.Middleware(limiter, options...)
	return func(c *gin.Context) {
		passed := false
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
			return
		}
		c.Next()
	}
}

// Header takes the key from a header field; a request without it gets 400, unless [sghttp.Shared] is given.
func Header(name string) sghttp.Option { return sghttp.Header(name) }
