package main

import (
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestATenantHasABudget(t *testing.T) {
	gin.SetMode(gin.TestMode)
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerMinute(1)))
	app := routes(gate.Gate)
	for _, c := range []struct {
		path string
		code int
	}{{"/orders", 200}, {"/orders", 429}, {"/health", 204}} {
		r, w := httptest.NewRequest("GET", c.path, nil), httptest.NewRecorder()
		r.Header.Set("X-Tenant", "acme")
		if app.ServeHTTP(w, r); w.Code != c.code {
			t.Errorf("%s: %d, expected %d", c.path, w.Code, c.code)
		}
	}
}
