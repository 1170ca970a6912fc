// Package unanswered gives back permits whose acquire had no answer, so that nobody else knows their id.
package unanswered

import (
	"context"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// againAfter is how long after the first release there is a second one. A server that holds an acquire back notices that its caller is
// gone 100 ms after the end of a connection over RESP, and may grant the permit as late as that.
const againAfter = 500 * time.Millisecond

// Release releases a permit that is perhaps held, and returns. If it was not held, or that is not known, it is released a second time
// in the background. The context may have ended: a release has no end but the deadline of its gate.
func Release(ctx context.Context, release func(context.Context) (held bool, err error)) {
	ctx = context.WithoutCancel(ctx)
	if held, err := release(ctx); err == nil && held {
		return
	}
	go func() {
		_ = wire.Sleep(ctx, againAfter) // the context does not end
		_, _ = release(ctx)             // if it fails as well, the permit lapses after its ttl
	}()
}
