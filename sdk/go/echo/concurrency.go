package sgecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

// Concurrency limits how many requests of routes are served at a time. It works as [sghttp.Concurrency] does, and has its options: a request
// holds its permit until the handler behind has returned. What echo answers for an error of that is sent afterwards.
func Concurrency(limiter *sluicegate.Limiter, options ...sghttp.Option) echo.MiddlewareFunc {
	guard := sghttp.Concurrency(limiter, options...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			outer := c.Request().Context()
			guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				err = next(c)
				c.SetRequest(c.Request().WithContext(outer)) // that of the handler ends
			})).ServeHTTP(c.Response(), c.Request())
			return err
		}
	}
}
