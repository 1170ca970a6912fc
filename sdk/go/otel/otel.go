// Package sgotel measures the decisions of a gate with OpenTelemetry.
package sgotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

const scope = "github.com/sluicegate/sluicegate/sdk/go"

// New returns the option by which a gate counts its decisions in `sluicegate.decisions` and measures them in
// `sluicegate.duration` (seconds), by policy, verb, result (`allowed`, `refused`, or the name of the error) and mode. The
// span of a request, if it has one, gets the same attributes. No key is in any of them. The option is an Observer, and other
// observers are called as well.
func New(provider metric.MeterProvider) (sluicegate.Option, error) {
	meter := provider.Meter(scope)
	decisions, err := meter.Int64Counter("sluicegate.decisions", metric.WithDescription("Decisions about rate limits."))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("sluicegate.duration", metric.WithUnit("s"),
		metric.WithDescription("How long decisions took."))
	if err != nil {
		return nil, err
	}
	return sluicegate.Observer(func(ctx context.Context, o sluicegate.Observation) {
		attributes := []attribute.KeyValue{
			attribute.String("policy", o.Policy), attribute.String("verb", o.Verb), attribute.String("result", result(o)),
		}
		if o.Err == nil {
			attributes = append(attributes, attribute.String("mode", string(o.Decision.Mode)))
		}
		set := metric.WithAttributeSet(attribute.NewSet(attributes...))
		decisions.Add(ctx, 1, set)
		duration.Record(ctx, o.Took.Seconds(), set)
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			for _, a := range attributes {
				span.SetAttributes(attribute.KeyValue{Key: "sluicegate." + a.Key, Value: a.Value})
			}
		}
	}), nil
}

func result(o sluicegate.Observation) string {
	var known *sluicegate.Error
	switch {
	case errors.As(o.Err, &known):
		return known.Name
	case o.Err != nil:
		return "error"
	case o.Decision.Allowed:
		return "allowed"
	default:
		return "refused"
	}
}
