// Package keyless passes the log message of a request without a key from a middleware to its gate.
package keyless

import "context"

// name is where a context has the message.
type name struct{}

// With returns the context of a request without a key. missing names the request and what it lacks, such as `request without header
// X-User`, and option the option by which such requests have a budget.
func With(ctx context.Context, missing, option string) context.Context {
	return context.WithValue(ctx, name{}, missing+" is not decided; "+option+" would let such requests share a budget")
}

// Message returns the message of a context; "" if it has none.
func Message(ctx context.Context) string {
	message, _ := ctx.Value(name{}).(string)
	return message
}
