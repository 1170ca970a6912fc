package sluicegate

import (
	"context"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// CostMax is the largest cost of a request, in permits.
const CostMax int64 = 1 << 31

// Mode is what decided.
type Mode string

// The modes of a decision.
const (
	// ModeStore: Redis decided, or the server did.
	ModeStore Mode = "store"
	// ModeLeased: the server, from permits that its store has set aside for it. Remaining may be less by what
	// other servers took since.
	ModeLeased Mode = "leased"
	// ModeRemembered: this process remembers that Redis refused the request, until its retry.
	ModeRemembered Mode = "remembered"
	// ModeLocal: Redis did not answer, and this process decided by its share of the limit.
	ModeLocal Mode = "local"
	// ModeAllow: Redis did not answer, and the policy has `on_store_failure: allow`.
	ModeAllow Mode = "allow"
	// ModeDeny: Redis did not answer or cannot read the key, and the policy has `deny` (or, for such a key, `local`).
	ModeDeny Mode = "deny"
	// ModeShed: Redis answers, or the server does, but came to no decision in time: refused.
	ModeShed Mode = "shed"
)

// OverflowKind is how the policy treats a request over the limit.
type OverflowKind string

// The kinds of overflow.
const (
	// OverflowNone: the request is within the limit, or simply refused.
	OverflowNone OverflowKind = ""
	// OverflowShadow: the request passes, and would be refused.
	OverflowShadow OverflowKind = "shadow"
	// OverflowDegrade: the request does not pass; serve what the tag stands for, or the response.
	OverflowDegrade OverflowKind = "degrade"
	// OverflowDivert: the request does not pass; send it to the target.
	OverflowDivert OverflowKind = "divert"
)

// Overflow is how a policy treats a request over the limit.
type Overflow struct {
	// Kind is the way; OverflowNone if the request is within the limit, or simply refused.
	Kind OverflowKind
	// Tag names what to serve instead, under OverflowDegrade; "" if there is a Response.
	Tag string
	// Response is what to answer instead, under OverflowDegrade; nil if there is a Tag. Do not change it.
	Response *Response
	// Target is where to send the request, under OverflowDivert.
	Target string
}

// Response is an answer to be served instead of a refusal.
type Response struct {
	// Status is 200 to 599.
	Status int
	// Headers are at most 32, with names in small letters.
	Headers map[string]string
	// Body is at most 64 KiB.
	Body string
}

// Quota is one rule of the policy, for header fields.
type Quota struct {
	// Rule is the name of the rule.
	Rule string
	// Limit is the permits that the rule lets pass in a Window, or at a time if Concurrent.
	Limit int64
	// Window is the time in which Limit comes back; 0 if the rule has none.
	Window time.Duration
	// Concurrent reports whether Limit counts requests at a time.
	Concurrent bool
}

// Decision is the answer to a request. It is a value: nothing changes it. The zero value is a refusal.
//
// An allowed request may have to wait: a `leaky_bucket` delays requests, and Reserve books permits of the future. Call
// [Decision.Sleep] before it goes on; without a wait that returns at once.
type Decision struct {
	// Allowed reports whether the request passes: after Wait, if that is not 0.
	Allowed bool
	// Granted is the permits that were taken, or given back by Refund; 0 if refused.
	Granted int64
	// Wait is how long an allowed request must be held back; Held of it is over.
	Wait time.Duration
	// Limit is the largest cost that the deciding rule ever lets pass at once.
	Limit int64
	// Remaining is the permits left under the deciding rule.
	Remaining int64
	// RetryAfter is when a refused request can pass, if CanRetry.
	RetryAfter time.Duration
	// CanRetry is false if a retry does not help: the request passed, can never pass, or names a permit in the wrong state.
	CanRetry bool
	// ResetAfter is the time until the budget of the deciding rule is full.
	ResetAfter time.Duration
	// Policy is the policy or limit of the request.
	Policy string
	// Rule is the name of the rule that decided.
	Rule string
	// Mode is what decided.
	Mode Mode
	// Overflow is how the policy treats a request over the limit.
	Overflow Overflow
	// Held is how long the request was held back already (`overflow: queue`).
	Held time.Duration
	// Quotas are the rules of the policy, in its order; from a server, the rules that its header fields name. Do not change it.
	Quotas []Quota

	clock Clock // by which to sleep; nil: the machine's
}

// Pause returns how long to wait before an allowed request goes on: Wait less Held.
func (d Decision) Pause() time.Duration { return max(d.Wait-d.Held, 0) }

// Sleep waits until an allowed request may go on, by the clock of the gate: for Pause, often 0. If the context ends before,
// it returns the error of the context; the permits stay taken unless you Refund them.
func (d Decision) Sleep(ctx context.Context) error {
	switch pause := d.Pause(); {
	case pause == 0:
		return nil
	case d.clock != nil:
		return d.clock.Sleep(ctx, pause)
	default:
		return wire.Sleep(ctx, pause)
	}
}

// Err returns nil if the request is allowed, and else a *LimitedError.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &LimitedError{d}
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up and at least 1; 0 if the request passed or can never
// pass.
func (d Decision) RetryAfterSeconds() int64 {
	if d.Allowed || !d.CanRetry {
		return 0
	}
	return max(seconds(d.RetryAfter), 1)
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
