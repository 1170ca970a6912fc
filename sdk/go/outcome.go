package sluicegate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/keyless"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
)

// lastFailure is the error of the last request, which the server left without a decision.
type lastFailure struct {
	at  time.Time
	err *Error
}

// requestStatuses are statuses of an answer that are about the request.
var requestStatuses = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// policyErrorNames are the names of errors that are about a policy, and so about all requests under it.
var policyErrorNames = []string{ErrUnknownPolicy.Name, ErrPolicyNotAvailable.Name, ErrAppMissing.Name, ErrUnreadablePolicy.Name}

// isStoreError reports whether an error is about Redis or the server, and not about the request or its policy.
func isStoreError(err *Error) bool {
	switch err.Name {
	case ErrNotCharged.Name, ErrPerhapsCharged.Name, ErrNothingPublished.Name:
		return true
	case ErrServer.Name:
		return !slices.Contains(requestStatuses, err.Status)
	default:
		return false
	}
}

// recordOutcome logs a request without a decision, as callers of middlewares do not see why, and keeps it for Health.
func (g *Gate) recordOutcome(ctx context.Context, policy string, mode Mode, err error) {
	if err == nil {
		if g.failing.Load() != nil {
			g.failing.Store(nil)
		}
		if g.notices.Quiet() {
			return
		}
		name := lex.Short(policy)
		g.notices.Recovered("policy "+name, "requests are decided again", "policy", name)
		if !g.inCode || mode == ModeStore {
			_, address := g.decider.endpoint()
			g.notices.Recovered("store", "requests are decided again", "address", address)
		}
		return
	}
	var sdkErr *Error
	if ctx.Err() != nil || !errors.As(err, &sdkErr) || sdkErr.Name == ErrInterrupted.Name {
		return // the caller went away
	}
	name := lex.Short(policy) // perhaps of a request
	if missing := keyless.Message(ctx); missing != "" && sdkErr.Name == ErrKeyEmpty.Name {
		g.notices.Debug("request "+name, missing, missing, "policy", name) // any client can leave its key out
		return
	}
	attributes := []any{"policy", name, "error", sdkErr.Error(), "meanwhile", "nothing: such requests get errors"}
	if _, address := g.decider.endpoint(); address != "" {
		attributes = append(attributes, "address", address)
	}
	switch {
	case isStoreError(sdkErr):
	case slices.Contains(policyErrorNames, sdkErr.Name):
		g.notices.Warn("policy "+name, sdkErr.Name, "no decision", attributes...)
		return
	default: // the next request may be another one, so this is never over
		g.notices.Warn("request "+name, sdkErr.Name, "no decision", attributes...)
		return
	}
	if !g.inCode { // the engine knows better how Redis is
		g.failing.Store(&lastFailure{g.clock.Now(), sdkErr})
	}
	g.notices.Warn("store", sdkErr.Name+" "+kindOf(sdkErr), "no decision", attributes...)
}

// kindOf returns a short word for the cause of an error of the store.
func kindOf(err *Error) string {
	switch {
	case err.Status != 0:
		return strconv.Itoa(err.Status)
	case err.cause != nil:
		return notice.KindOf(err.cause)
	default:
		return ""
	}
}
