package sgotel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	sgotel "github.com/sluicegate/sluicegate/sdk/go/otel"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestDecisionsAreCountedByPolicyResultAndMode(t *testing.T) {
	reader, ctx := metric.NewManualReader(), context.Background()
	option, err := sgotel.New(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	gate := sgtest.NewGate(t, option, sluicegate.Rules("orders", sluicegate.TokenBucket(1, 10*time.Second)))
	for range 3 {
		if _, err := gate.Policy("orders").Allow(ctx, "k"); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = gate.Policy("none").Allow(ctx, "k")
	_, _ = gate.Policy("orders").Allow(ctx, "")
	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if m.Name == "sluicegate.duration" {
			points := m.Data.(metricdata.Histogram[float64]).DataPoints
			if m.Unit != "s" || len(points) != 5 || points[0].Bounds[0] > 0.001 {
				t.Errorf("%s, %+v", m.Unit, points)
			}
		}
		if m.Name != "sluicegate.decisions" {
			continue
		}
		if m.Unit != "{decision}" {
			t.Error(m.Unit)
		}
		for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
			result, _ := point.Attributes.Value("result")
			mode, decided := point.Attributes.Value("mode")
			kind, failed := point.Attributes.Value("error.type")
			if decided == failed {
				t.Errorf("%v: a mode and an error", point.Attributes)
			}
			counted[result.AsString()+" "+mode.AsString()+kind.AsString()] = point.Value
		}
	}
	for what, n := range map[string]int64{"allowed store": 1, "refused store": 1, "refused remembered": 1, "error unknown_policy": 1, "error key_empty": 1} {
		if counted[what] != n {
			t.Errorf("%s: %d of %v", what, counted[what], counted)
		}
	}
}
