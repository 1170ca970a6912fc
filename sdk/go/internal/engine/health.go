package engine

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// failingFor is how long a question without an answer counts, if none was asked since: a program with few requests is not
// degraded for hours by one that was lost.
const failingFor = time.Minute

// shedFor is how long a question that was shed counts, as others are decided in time meanwhile.
const shedFor = 10 * time.Second

// failing is a question that had no answer, or none in time.
type failing struct {
	now int64
	why *wire.Failure
}

// Level is how well an engine decides.
type Level int

// The levels.
const (
	LevelUp       Level = iota // as it should
	LevelDegraded              // without Redis, or not under every policy
	LevelDown                  // not at all
)

// Health asks Redis for the policies, and returns how well the engine decides; the error says why it is not up. needed says whether
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
	held, found := e.Policies.State()
	lost := LevelDegraded
	if needed && held == 0 {
		lost = LevelDown
	}
	failed, shed := e.failing.Load(), e.shed.Load()
	name, why := e.Policies.Unreadable()
	switch {
	case err != nil:
		return lost, &wire.Failure{Class: wire.ClassNoAnswer, Cause: e.redis.Cause(err, false)}
	case needed && found == policy.FoundNothing:
		return lost, e.NothingPublished()
	case needed && found == policy.FoundFormat:
		return lost, policyErrorOf("unreadable_policy", "policy: %v", policy.ErrFormat)
	case failed != nil && (e.breaker.isOpen() || e.nowUS()-failed.now < failingFor.Microseconds()):
		return LevelDegraded, failed.why
	case shed != nil && e.nowUS()-shed.now < shedFor.Microseconds():
		return LevelDegraded, shed.why
	case needed && name != "":
		return LevelDegraded, policyErrorOf("unreadable_policy", "policy: `%s` cannot be read: %s", name, lex.Cut(why))
	}
	return LevelUp, nil
}

// Require returns why requests under a policy would not be decided; nil if they would.
func (e *Engine) Require(ctx context.Context, a Request) error {
	_, err := e.policyFor(ctx, a)
	return err
}
