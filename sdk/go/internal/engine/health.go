package engine

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// failureLasts is how long a request without an answer counts, if there was none since: a program with few requests is not
// degraded for hours by one that was lost.
const failureLasts = time.Minute

// shedLasts is how long a request that was shed counts, as others are decided in time meanwhile.
const shedLasts = 10 * time.Second

// failedRequest is a request that had no answer, or none in time.
type failedRequest struct {
	now     int64
	failure *wire.Failure
}

// Level is how well an engine decides.
type Level int

// The levels.
const (
	LevelUp       Level = iota // as it should
	LevelDegraded              // without Redis, or not under every policy
	LevelDown                  // not at all
)

// Health reads the policies from Redis, and returns how well the engine decides; the error is why it is not up. needed reports whether
// the program uses policies.
func (e *Engine) Health(ctx context.Context, needed bool) (Level, error) {
	if e.redis == nil {
		return LevelUp, nil
	}
	// As on a message: what is earlier than what is held is left to the looks, which take their time over it.
	err := e.follower.Look(ctx, true)
	if !errors.Is(err, context.Canceled) {
		e.follower.Report(err)
	}
	policyCount, found := e.Policies.State()
	withoutRedis := LevelDegraded
	if needed && policyCount == 0 {
		withoutRedis = LevelDown
	}
	failed, shed := e.failing.Load(), e.shed.Load()
	name, reason := e.Policies.Unreadable()
	switch {
	case err != nil:
		return withoutRedis, &wire.Failure{Class: wire.ClassNoAnswer, Cause: e.redis.Cause(err, false)}
	case needed && found == policy.FoundNothing:
		return withoutRedis, e.NothingPublished()
	case needed && found == policy.FoundFormat:
		return withoutRedis, policyErrorOf("unreadable_policy", "policy: %v", policy.ErrFormat)
	case failed != nil && (e.breaker.isOpen() || e.nowUS()-failed.now < failureLasts.Microseconds()):
		return LevelDegraded, failed.failure
	case shed != nil && e.nowUS()-shed.now < shedLasts.Microseconds():
		return LevelDegraded, shed.failure
	case needed && name != "":
		return LevelDegraded, policyErrorOf("unreadable_policy", "policy: `%s` cannot be read: %s", name, lex.Truncate(reason))
	}
	return LevelUp, nil
}

// Require returns why requests under a policy would not be decided; nil if they would.
func (e *Engine) Require(ctx context.Context, request Request) error {
	_, err := e.policyFor(ctx, request)
	return err
}
