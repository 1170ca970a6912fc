package sluicegate

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
)

// An answer over HTTP has all members that the specification has, of their types and within their ranges, or it is no decision.

var errIncompleteAnswer = errors.New("the answer is no decision")

// notADecision is the error of an answer that is no decision. Whether something was charged is not known.
func notADecision() *Error {
	err := newError(ErrServer, errIncompleteAnswer, "server: %d %v", http.StatusOK, errIncompleteAnswer)
	err.Status = http.StatusOK
	return err
}

// amount is a number of an answer: permits, or a time. null is permitted where the specification permits it.
type amount struct {
	n                 int64
	present, isNumber bool // there at all; a number, and not null
}

// UnmarshalJSON reads a whole number of 0 to 2^53, or null.
func (a *amount) UnmarshalJSON(text []byte) error {
	*a = amount{present: true}
	if string(text) == "null" {
		return nil
	}
	n, rest, ok := lex.Digits(string(text))
	if !ok || rest != "" || n > kernel.UnitsMax {
		return errIncompleteAnswer
	}
	a.n, a.isNumber = n, true
	return nil
}

// allKnown reports whether all amounts are there.
func allKnown(amounts ...amount) bool {
	return !slices.ContainsFunc(amounts, func(a amount) bool { return !a.isNumber })
}

// remoteLeft is what is left of a budget.
type remoteLeft struct {
	Allowed   *bool  `json:"allowed"`
	Remaining amount `json:"remaining"`
	RetryUS   amount `json:"retry_after_us"` // null: never
	ResetUS   amount `json:"reset_after_us"`
}

func (got remoteLeft) complete() bool {
	return got.Allowed != nil && got.RetryUS.present && allKnown(got.Remaining, got.ResetUS)
}

// applyTo returns a decision with what is left.
func (got remoteLeft) applyTo(d Decision) Decision {
	d.Allowed, d.Remaining, d.ResetAfter = *got.Allowed, got.Remaining.n, kernel.Span(got.ResetUS.n)
	if !d.Allowed && got.RetryUS.isNumber {
		d.CanRetry, d.RetryAfter = true, kernel.Span(got.RetryUS.n)
	}
	return d
}

// remoteAnswer is a decision.
type remoteAnswer struct {
	remoteLeft
	Granted  amount          `json:"granted"`
	WaitUS   amount          `json:"wait_us"`
	Limit    amount          `json:"limit"`
	Rule     *string         `json:"rule"`
	Mode     Mode            `json:"mode"`
	HeldUS   amount          `json:"held_us"`
	Overflow OverflowKind    `json:"overflow"`
	Tag      string          `json:"tag"`
	Target   string          `json:"target"`
	Response *remoteResponse `json:"response"`
}

type remoteResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
}

func (got remoteAnswer) complete() bool {
	r := got.Response
	return got.remoteLeft.complete() && allKnown(got.Granted, got.WaitUS, got.Limit) && got.Rule != nil &&
		(r == nil || isResponseStatus(int64(r.Status)) && r.Headers != nil && r.Body != nil)
}

// isResponseStatus reports whether a status is one that a response of a policy may have.
func isResponseStatus(status int64) bool { return status >= 200 && status <= 599 }

// decision returns the decision that a complete answer is.
func (got remoteAnswer) decision(policy string, quotas []Quota) Decision {
	d := got.applyTo(Decision{
		Granted: got.Granted.n, Wait: kernel.Span(got.WaitUS.n), Limit: got.Limit.n, Policy: policy, Rule: *got.Rule, Mode: cmp.Or(got.Mode, ModeStore),
		Held: kernel.Span(got.HeldUS.n), Overflow: Overflow{Kind: got.Overflow, Tag: got.Tag, Target: got.Target}, Quotas: quotas,
	})
	if got.Response != nil {
		d.Overflow.Response = &Response{got.Response.Status, got.Response.Headers, *got.Response.Body}
	}
	return d
}

// remoteSettlement is the answer to a settlement.
type remoteSettlement struct {
	Refunded amount       `json:"refunded"`
	Taken    amount       `json:"taken"`
	Missing  amount       `json:"missing"`
	Decision remoteAnswer `json:"decision"`
}

func (got remoteSettlement) complete() bool {
	return allKnown(got.Refunded, got.Taken, got.Missing) && got.Decision.complete()
}

// remoteExplanation is the answer to a request to explain a decision.
type remoteExplanation struct {
	Decision       remoteAnswer  `json:"decision"`
	WouldCharge    amount        `json:"would_charge"`
	RulesOf        *string       `json:"rules_of"`
	Overflow       *string       `json:"overflow"`
	OnStoreFailure *string       `json:"on_store_failure"`
	App            *string       `json:"app"`
	Apps           []string      `json:"apps"`
	Rules          *[]remoteRule `json:"rules"`
}

type remoteRule struct {
	Name      *string     `json:"name"`
	Algorithm *string     `json:"algorithm"`
	Limit     amount      `json:"limit"`
	WindowS   amount      `json:"window_s"`
	Left      *remoteLeft `json:"left"`
}

func (got remoteExplanation) complete() bool {
	if !got.Decision.complete() || !got.WouldCharge.isNumber || got.RulesOf == nil || got.Overflow == nil ||
		got.OnStoreFailure == nil || got.Rules == nil {
		return false
	}
	for _, r := range *got.Rules {
		if r.Name == nil || r.Algorithm == nil || !r.Limit.isNumber || r.Left != nil && !r.Left.complete() {
			return false
		}
	}
	return true
}

// remoteBatch is the answer to a batch.
type remoteBatch struct {
	Allowed *bool             `json:"allowed"` // of a batch that passes together or not at all
	Refused amount            `json:"refused"` // the place of the check that was refused
	Answers []json.RawMessage `json:"answers"`

	checks int // of the request
	atomic bool
}

func (got remoteBatch) complete() bool {
	switch {
	case !got.atomic:
		return len(got.Answers) == got.checks
	case got.Allowed == nil:
		return false
	case *got.Allowed:
		return len(got.Answers) == got.checks
	default:
		return len(got.Answers) == 1 && got.Refused.isNumber && got.Refused.n < int64(got.checks)
	}
}
