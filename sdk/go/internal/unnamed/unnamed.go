// Package unnamed passes to the middlewares what package sluicegate does not export: a way to acquire several permits under a random id.
package unnamed

import (
	"context"
	"math"
	"time"
)

// NoWait is the longest wait of an acquire that has none of its own.
const NoWait time.Duration = math.MinInt64

// Acquire acquires n permits, and releases the id if there is no answer: nobody else knows it. limiter is a *sluicegate.Limiter, and permit
// a *sluicegate.Permit. Package sluicegate sets it.
var Acquire func(ctx context.Context, limiter any, key string, n int64, maxWait time.Duration) (permit any, err error)
