// Package sgecho guards routes of echo.
package sgecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// Middleware guards routes by a limiter. Its options are those of sghttp: what is refused gets 429 with header fields and
// problem+json, and the handlers behind do not run.
func Middleware(limiter *sluicegate.Limiter, options ...sghttp.Option) echo.MiddlewareFunc {
	guard := sghttp.Middleware(limiter, options...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			passed := false
			guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(c.Response(), c.Request())
			if !passed {
				return nil
			}
			return next(c)
		}
	}
}

// Header takes the key from a header field; a request without it gets 400, unless [sghttp.Shared] is given.
func Header(name string) sghttp.Option { return sghttp.Header(name) }
