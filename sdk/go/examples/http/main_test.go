package main

import (
	"net/http/httptest"
	"testing"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestATenantHasABudget(t *testing.T) {
	gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerMinute(1).Burst(2)))
	handler := routes(gate.Gate)
	ready := httptest.NewRecorder()
	if handler.ServeHTTP(ready, httptest.NewRequest("GET", "/ready", nil)); ready.Code != 200 {
		t.Errorf("not ready: %d", ready.Code)
	}
	for i, want := range []int{200, 200, 429} {
		r, w := httptest.NewRequest("GET", "/orders", nil), httptest.NewRecorder()
		r.Header.Set("X-Tenant", "acme")
		if handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("request %d: %d, expected %d", i, w.Code, want)
		}
	}
}
