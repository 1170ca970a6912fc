// A gin application whose requests are decided by a Sluicegate server, which is asked over HTTP.
//
//	SLUICEGATE=http://localhost:8080 TOKEN=... go run .
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"
	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sggin "github.com/sluicegate/sluicegate/sdk/go/gin"
)

func main() {
	gate, err := sluicegate.Remote(os.Getenv("SLUICEGATE"), sluicegate.Token(os.Getenv("TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	log.Print(routes(gate).Run(":8000"))
}

// routes gives each tenant the budget of the policy `orders`, and leaves /health alone.
func routes(gate *sluicegate.Gate) *gin.Engine {
	app := gin.New()
	app.GET("/health", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	orders := app.Group("/orders", sggin.Middleware(gate.Policy("orders"), sggin.Header("X-Tenant")))
	orders.GET("", func(c *gin.Context) { c.String(http.StatusOK, "ordered\n") })
	return app
}
