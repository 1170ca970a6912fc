// Package unanswered gives back permits whose acquire had no answer of Redis in time, so that nobody else knows their id.
package unanswered

import (
	"context"
	"sync/atomic"
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

// laterMax is how many permits are released in the background at a time, as many as a server releases of its own. More lapse after their ttl.
const laterMax = 1024

var later atomic.Int64

// Later releases a permit that Redis may grant after the answer, in the background: once, and a second time if it was not held or that is
// not known.
func Later(ctx context.Context, release func(context.Context) (held bool, err error)) {
	if later.Add(1) > laterMax {
		later.Add(-1)
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer later.Add(-1)
		for range 2 {
			_ = wire.Sleep(ctx, againAfter) // the context does not end
			if held, err := release(ctx); err == nil && held {
				return
			}
		}
	}()
}
