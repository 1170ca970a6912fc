// Package keyless has middlewares say to the log of a gate what a request without a key lacks.
package keyless

import "context"

// name is where a context has the message.
type name struct{}

// With returns the context of a request without a key. lacks names the request and what it lacks, such as `request without header
// X-User`, and shared the option by which such requests have a budget.
func With(ctx context.Context, lacks, shared string) context.Context {
	return context.WithValue(ctx, name{}, lacks+" is not decided; "+shared+" would let such requests share a budget")
}

// Message returns the message of a context; "" if it has none.
func Message(ctx context.Context) string {
	message, _ := ctx.Value(name{}).(string)
	return message
}
