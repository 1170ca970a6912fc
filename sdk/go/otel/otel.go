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
// `sluicegate.duration` (seconds), by policy, verb and result (`allowed`, `refused` or `error`). A decision has the attribute
// mode as well, and an error `error.type`: its name, such as `unknown_policy`. The span of a request, if it has one, gets the
// same attributes, with the prefix `sluicegate.` except for `error.type`. No key is in any of them. The option is an Observer,
// and other observers are called as well.
func New(provider metric.MeterProvider) (sluicegate.Option, error) {
	meter := provider.Meter(scope)
	decisions, err := meter.Int64Counter("sluicegate.decisions", metric.WithUnit("{decision}"),
		metric.WithDescription("Decisions about rate limits."))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("sluicegate.duration", metric.WithUnit("s"),
		metric.WithDescription("How long decisions took."), metric.WithExplicitBucketBoundaries(boundaries...))
	if err != nil {
		return nil, err
	}
	return sluicegate.Observer(func(ctx context.Context, o sluicegate.Observation) {
		attributes := []attribute.KeyValue{
			attribute.String("policy", o.Policy), attribute.String("verb", o.Verb), attribute.String("result", result(o)),
		}
		if o.Err == nil {
			attributes = append(attributes, attribute.String("mode", string(o.Decision.Mode)))
		} else {
			attributes = append(attributes, attribute.String(errorType, nameOf(o.Err)))
		}
		set := metric.WithAttributeSet(attribute.NewSet(attributes...))
		decisions.Add(ctx, 1, set)
		duration.Record(ctx, o.Took.Seconds(), set)
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			for _, a := range attributes {
				if a.Key != errorType {
					a.Key = "sluicegate." + a.Key
				}
				span.SetAttributes(a)
			}
		}
	}), nil
}

// errorType is the attribute that OpenTelemetry has for errors.
const errorType = "error.type"

// boundaries are those of the buckets, in seconds: the ones that are used without them are for milliseconds.
var boundaries = []float64{0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

func result(o sluicegate.Observation) string {
	switch {
	case o.Err != nil:
		return "error"
	case o.Decision.Allowed:
		return "allowed"
	default:
		return "refused"
	}
}

// nameOf returns the name of an error; `_OTHER` if it has none, as in OpenTelemetry.
func nameOf(err error) string {
	var known *sluicegate.Error
	if errors.As(err, &known) {
		return known.Name
	}
	return "_OTHER"
}
