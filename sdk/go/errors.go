package sluicegate

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// Error is why a request has no decision: a mistake of the caller, or a store that does not answer. A refusal is not an
// error but a [Decision]. Compare an Error with the variables of this package by errors.Is.
type Error struct {
	// Name identifies the error, in all SDKs alike: `unknown_policy`, for example.
	Name string
	// Charged is whether the request was charged nevertheless.
	Charged Charged
	// Status is that of a server's answer: 409 of an id that was settled already, for example. 0 of other errors.
	Status int

	text  string
	cause error
}

// Charged is whether a request without a decision took effect nevertheless. A server reports it with each of its errors; one
// of before that, and a balancer that answers in its place, count as [ChargedUnknown].
type Charged string

const (
	// ChargedNo means that the request took no effect: you may send it again.
	ChargedNo Charged = "no"
	// ChargedYes means that the request took effect: members of an atomic batch stay charged.
	ChargedYes Charged = "yes"
	// ChargedUnknown means that the request may have taken effect: sent again, it may be charged twice.
	ChargedUnknown Charged = "unknown"
)

// Error returns the text.
func (e *Error) Error() string { return cmp.Or(e.text, e.Name) }

// Unwrap returns the cause, such as context.Canceled; nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error of the same name.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Name == e.Name
}

// The errors of this package, to be compared by errors.Is.
var (
	// ErrUnknownPolicy means that no policy of the name is published, or configured at the server. Check the name, and that the
	// policy is active; the next request looks again.
	ErrUnknownPolicy = &Error{Name: "unknown_policy", Charged: ChargedNo}
	// ErrNothingPublished means that Redis answers, but that no policies are published in it, and none are held: no server works on
	// this Redis, or its `store.publish` is false. The text has the address. Check it, and start a server.
	ErrNothingPublished = &Error{Name: "nothing_published", Charged: ChargedNo}
	// ErrPolicyNotAvailable means that the policy is for other apps, or the verb for its owner only. Add the app to the `apps` of
	// the policy, or correct [App].
	ErrPolicyNotAvailable = &Error{Name: "policy_not_available", Charged: ChargedNo}
	// ErrAppMissing means that the policy is for some apps, and that the gate has none. Set [App], or the [Token] of the app.
	ErrAppMissing = &Error{Name: "app_missing", Charged: ChargedNo}
	// ErrAppName means that the text of [App] is not 1 to 128 bytes of `a-z0-9._-`. Correct it.
	ErrAppName = &Error{Name: "app_name", Charged: ChargedNo}
	// ErrKeyEmpty means that the key is empty. Pass a key, or call [Limiter.Shared] for the budget that all share.
	ErrKeyEmpty = &Error{Name: "key_empty", Charged: ChargedNo}
	// ErrKeyLength means that the key is longer than 1,024 bytes, or that a limiter of [Limiter.Shared] got one. Pass a hash of
	// it, or "" to the latter.
	ErrKeyLength = &Error{Name: "key_length", Charged: ChargedNo}
	// ErrKeyText means that the key, or the id of a permit, is not UTF-8, as a server over HTTP needs. Encode it, in base64 for
	// example; Redis and RESP take any bytes.
	ErrKeyText = &Error{Name: "key_text", Charged: ChargedNo}
	// ErrIDLength means that the id of a permit or settlement is empty or longer than 1,024 bytes. Correct it.
	ErrIDLength = &Error{Name: "id_length", Charged: ChargedNo}
	// ErrCostRange means that the cost is outside 1..=2^31. Correct it; split a larger one.
	ErrCostRange = &Error{Name: "cost_range", Charged: ChargedNo}
	// ErrMaxWaitRange means that the longest wait is negative or above 2^53 - 1 µs. Correct it.
	ErrMaxWaitRange = &Error{Name: "max_wait_range", Charged: ChargedNo}
	// ErrNodesRange means that [Nodes] is outside 1..=2^32 - 1. Correct it.
	ErrNodesRange = &Error{Name: "nodes_range", Charged: ChargedNo}
	// ErrDeadlineRange means that [Deadline] is outside 1..=10,000 ms. Correct it.
	ErrDeadlineRange = &Error{Name: "deadline_range", Charged: ChargedNo}
	// ErrUnsupportedVerb means that the rules do not have the verb: only `concurrency` has Acquire, Release and Renew, and it has
	// neither Allow nor Reserve; AcquireWithin needs a `queue` in it. Call another method, or change the policy.
	ErrUnsupportedVerb = &Error{Name: "unsupported_verb", Charged: ChargedNo}
	// ErrNotInDirectMode means that only a server can do this. Use a gate made by [Remote].
	ErrNotInDirectMode = &Error{Name: "not_in_direct_mode", Charged: ChargedNo}
	// ErrNotOnThisWire means that the protocol of Redis does not have this. Give [Remote] an address of http or https.
	ErrNotOnThisWire = &Error{Name: "not_on_this_wire", Charged: ChargedNo}
	// ErrNotCharged means that Redis or the server did not answer, or answered with an error of its own such as NOAUTH, and that nothing
	// was charged. You may send the request again.
	ErrNotCharged = &Error{Name: "not_charged", Charged: ChargedNo}
	// ErrPerhapsCharged means that the answer was lost, so the request may have been executed. Send it again only if a second
	// charge does no harm.
	ErrPerhapsCharged = &Error{Name: "perhaps_charged", Charged: ChargedUnknown}
	// ErrInterrupted means that the context ended while the request was under way: it may have been executed. The error is that of
	// the context as well.
	ErrInterrupted = &Error{Name: "interrupted", Charged: ChargedUnknown}
	// ErrUnreadablePolicy means that the record of the policy is of a later version, or that it is damaged and no earlier version
	// is held. Update the program, or publish the policy again.
	ErrUnreadablePolicy = &Error{Name: "unreadable_policy", Charged: ChargedNo}
	// ErrRules means that a file of records, or a policy or limit made in code, is not valid. The text names the parameter and its
	// range.
	ErrRules = &Error{Name: "rules", Charged: ChargedNo}
	// ErrServer means that a server answered with a problem that is none of these, or with what is not a decision. See
	// Error.Status and Error.Charged, and the log of the server.
	ErrServer = &Error{Name: "server", Charged: ChargedUnknown}

	// ErrLimited means that the request is refused: see [Decision.Err]. Try again after Decision.RetryAfter.
	ErrLimited = errors.New("limited")
	// ErrNotHeld means that a permit is not held any more: it lapsed, or was released. It is the error of [Permit.Renew], and the
	// cause of the end of the context of [Permit.Hold]. Stop the work that needs it, or acquire another.
	ErrNotHeld = errors.New("the permit is not held any more")
	// ErrOption means that an option does not belong to the constructor. The error is an [OptionError]. Remove the option.
	ErrOption = errors.New("option of another constructor")
	// ErrAddress means that [Remote] cannot use the address. Give it one of http, https, resp, resps or unix.
	ErrAddress = errors.New("not an address of a server")
	// ErrClient means that [Direct] cannot use the client of Redis: it is nil, or has no ContextTimeoutEnabled. Set that in its
	// options.
	ErrClient = errors.New("not a usable client of Redis")
)

func newError(of *Error, cause error, format string, args ...any) *Error {
	return &Error{Name: of.Name, Charged: of.Charged, text: fmt.Sprintf(format, args...), cause: cause}
}

// charged sets whether the request was charged.
func (e *Error) charged(charged Charged) *Error {
	e.Charged = charged
	return e
}

// perhapsCharged reports whether a request that has this error, and no decision, may have taken effect nevertheless.
func perhapsCharged(err error) bool {
	var sdkErr *Error
	return errors.As(err, &sdkErr) && sdkErr.Charged != ChargedNo
}

// LimitedError is a refusal as an error: see [Decision.Err].
type LimitedError struct{ Decision Decision }

// Error returns the text.
func (e *LimitedError) Error() string {
	if !e.Decision.CanRetry {
		return "limited by `" + e.Decision.Rule + "`; do not retry"
	}
	return fmt.Sprintf("limited by `%s`; retry after %v", e.Decision.Rule, e.Decision.RetryAfter)
}

// Unwrap returns ErrLimited.
func (e *LimitedError) Unwrap() error { return ErrLimited }

// errorOf is the error of a request that an engine did not decide. where is the store's place.
func errorOf(err error, where string) *Error {
	var policyError *engine.PolicyError
	if errors.As(err, &policyError) {
		return &Error{Name: policyError.Name, Charged: ChargedNo, text: policyError.Text}
	}
	return storeError(err.(*wire.Failure), where)
}

// storeError is the error of a request that a failure left without a decision. where is what did not answer.
func storeError(f *wire.Failure, where string) *Error {
	cause := lex.Truncate(f.Cause.Error())
	if where != "" && f.Class != wire.ClassCaller {
		cause = where + ": " + cause
	}
	switch {
	case !f.Charged:
		return newError(ErrNotCharged, f.Cause, "store: %s; nothing was charged", cause)
	case f.Class == wire.ClassCaller: // it went away while the request was under way
		return newError(ErrInterrupted, f.Cause, "interrupted: %s; perhaps charged, not repeated", cause)
	default:
		return newError(ErrPerhapsCharged, f.Cause, "store: %s; perhaps charged, not repeated", cause)
	}
}
