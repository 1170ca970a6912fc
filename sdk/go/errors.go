package sluicegate

import (
	"errors"
	"fmt"
)

// Error tells why a request has no decision: a mistake of the caller, or a store that does not answer. A refusal is not an
// error but a [Decision]. Compare an Error with the variables of this package by errors.Is.
type Error struct {
	// Name identifies the error, in all SDKs alike: `unknown_policy`, for example.
	Name string
	// Charged tells whether the request was charged nevertheless.
	Charged Charged
	// Status is that of a server's answer: 409 of an id that was settled already, for example. 0 of other errors.
	Status int

	text  string
	cause error
}

// Charged tells whether a request without a decision took effect nevertheless. A server says it of each of its errors; one
// of before that, and a balancer that answers in its place, count as [ChargedUnknown].
type Charged string

const (
	// ChargedNo says that the request took no effect: you may send it again.
	ChargedNo Charged = "no"
	// ChargedYes says that the request took effect: members of an atomic batch stay charged.
	ChargedYes Charged = "yes"
	// ChargedUnknown says that the request may have taken effect: sent again, it may be charged twice.
	ChargedUnknown Charged = "unknown"
)

// Error returns the text.
func (e *Error) Error() string {
	if e.text == "" {
		return e.Name
	}
	return e.text
}

// Unwrap returns the cause, such as context.Canceled; nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error of the same name.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Name == e.Name
}

// The errors of this package, to be compared by errors.Is.
var (
	// ErrUnknownPolicy says that the policy is not published, not configured or not in force.
	ErrUnknownPolicy = &Error{Name: "unknown_policy", Charged: ChargedNo}
	// ErrPolicyNotAvailable says that the policy is for other apps, or the verb for its owner only.
	ErrPolicyNotAvailable = &Error{Name: "policy_not_available", Charged: ChargedNo}
	// ErrAppMissing says the same, where the program says no app.
	ErrAppMissing = &Error{Name: "app_missing", Charged: ChargedNo}
	// ErrAppName says that the app is not a valid name.
	ErrAppName = &Error{Name: "app_name", Charged: ChargedNo}
	// ErrKeyEmpty says that the key is empty; Limiter.Shared is for the budget that all share.
	ErrKeyEmpty = &Error{Name: "key_empty", Charged: ChargedNo}
	// ErrKeyLength says that the key is longer than 1,024 bytes.
	ErrKeyLength = &Error{Name: "key_length", Charged: ChargedNo}
	// ErrKeyText says that the key, or the id of a permit, is not UTF-8, which a server needs; Redis takes any bytes.
	ErrKeyText = &Error{Name: "key_text", Charged: ChargedNo}
	// ErrIDLength says that the id of a permit is empty or longer than 1,024 bytes.
	ErrIDLength = &Error{Name: "id_length", Charged: ChargedNo}
	// ErrCostRange says that the cost is outside 1..=2^31.
	ErrCostRange = &Error{Name: "cost_range", Charged: ChargedNo}
	// ErrMaxWaitRange says that the longest wait is negative or above 2^53 - 1 µs.
	ErrMaxWaitRange = &Error{Name: "max_wait_range", Charged: ChargedNo}
	// ErrNodesRange says that the number of nodes is outside 1..=2^32 - 1.
	ErrNodesRange = &Error{Name: "nodes_range", Charged: ChargedNo}
	// ErrDeadlineRange says that the deadline is outside 1..=10,000 ms.
	ErrDeadlineRange = &Error{Name: "deadline_range", Charged: ChargedNo}
	// ErrUnsupportedVerb says that the rules do not know the verb.
	ErrUnsupportedVerb = &Error{Name: "unsupported_verb", Charged: ChargedNo}
	// ErrNotInDirectMode says that only a server can do this.
	ErrNotInDirectMode = &Error{Name: "not_in_direct_mode", Charged: ChargedNo}
	// ErrNotOnThisWire says that the protocol by which a server is asked cannot do this.
	ErrNotOnThisWire = &Error{Name: "not_on_this_wire", Charged: ChargedNo}
	// ErrNotCharged says that there is no decision, and that nothing was charged.
	ErrNotCharged = &Error{Name: "not_charged", Charged: ChargedNo}
	// ErrPerhapsCharged says that there is no decision, and that the request may have been executed.
	ErrPerhapsCharged = &Error{Name: "perhaps_charged", Charged: ChargedUnknown}
	// ErrInterrupted says that the context ended while the request was under way: it may have been executed.
	ErrInterrupted = &Error{Name: "interrupted", Charged: ChargedUnknown}
	// ErrUnreadablePolicy says that the policy is published, but its record cannot be read: it is of a later version, or it is
	// damaged and no earlier version is held.
	ErrUnreadablePolicy = &Error{Name: "unreadable_policy", Charged: ChargedNo}
	// ErrRules says that a file of records, or a policy or limit made in code, is not valid.
	ErrRules = &Error{Name: "rules", Charged: ChargedNo}
	// ErrServer says that a server answered with a problem that is none of these, or with what is no decision:
	// Charged tells whether something was charged.
	ErrServer = &Error{Name: "server", Charged: ChargedUnknown}

	// ErrLimited is what Decision.Err of a refusal is.
	ErrLimited = errors.New("limited")
)

func newError(of *Error, cause error, format string, args ...any) *Error {
	return &Error{Name: of.Name, Charged: of.Charged, text: fmt.Sprintf(format, args...), cause: cause}
}

// charged sets whether the request was charged.
func (e *Error) charged(charged Charged) *Error {
	e.Charged = charged
	return e
}

// LimitedError is a refusal as an error: see [Decision.Err].
type LimitedError struct{ Decision Decision }

func (e *LimitedError) Error() string {
	if !e.Decision.CanRetry {
		return "limited by `" + e.Decision.Rule + "`; the request can never pass"
	}
	return fmt.Sprintf("limited by `%s`; retry after %v", e.Decision.Rule, e.Decision.RetryAfter)
}

// Unwrap returns ErrLimited.
func (e *LimitedError) Unwrap() error { return ErrLimited }

var errUnsupported = errors.New("unsupported verb")

// storeError is the error of a request that a failure left without a decision.
func storeError(f *failure) *Error {
	if f.charged && f.class == classCaller {
		return interrupted(f.cause)
	}
	cause := outside(f.cause.Error())
	if f.charged {
		return newError(ErrPerhapsCharged, f.cause, "store: %s; perhaps charged, not repeated", cause)
	}
	return newError(ErrNotCharged, f.cause, "store: %s; nothing was charged", cause)
}

// interrupted is the error of a caller that went away while its request was under way.
func interrupted(cause error) *Error {
	return newError(ErrInterrupted, cause, "interrupted: %s; perhaps charged, not repeated", outside(cause.Error()))
}
