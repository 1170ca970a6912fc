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

// failing is the error of the last request, which the server left without a decision.
type failing struct {
	at  time.Time
	err *Error
}

// ofRequests are statuses of a server's answer that say something of the request.
var ofRequests = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// ofPolicies are the names of errors that say something of a policy, and so of all requests under it.
var ofPolicies = []string{ErrUnknownPolicy.Name, ErrPolicyNotAvailable.Name, ErrAppMissing.Name, ErrUnreadablePolicy.Name}

// isOfStore reports whether an error says something of Redis or of the server, and not of the request or its policy.
func isOfStore(err *Error) bool {
	switch err.Name {
	case ErrNotCharged.Name, ErrPerhapsCharged.Name, ErrNothingPublished.Name:
		return true
	case ErrServer.Name:
		return !slices.Contains(ofRequests, err.Status)
	default:
		return false
	}
}

// note logs a request without a decision, as callers of middlewares do not see why, and keeps it for Health.
func (g *Gate) note(ctx context.Context, policy string, by Mode, err error) {
	if err == nil {
		if g.failing.Load() != nil {
			g.failing.Store(nil)
		}
		if g.notices.Quiet() {
			return
		}
		name := lex.Short(policy)
		g.notices.Over("policy "+name, "requests are decided again", "policy", name)
		if !g.inCode || by == ModeStore {
			_, address := g.decider.place()
			g.notices.Over("store", "requests are decided again", "address", address)
		}
		return
	}
	var known *Error
	if ctx.Err() != nil || !errors.As(err, &known) || known.Name == ErrInterrupted.Name {
		return // the caller went away
	}
	name := lex.Short(policy) // perhaps of a request
	if lacks := keyless.Message(ctx); lacks != "" && known.Name == ErrKeyEmpty.Name {
		g.notices.Debug("request "+name, lacks, lacks, "policy", name) // any client can leave its key out
		return
	}
	attributes := []any{"policy", name, "error", known.Error(), "meanwhile", "nothing: such requests get errors"}
	if _, address := g.decider.place(); address != "" {
		attributes = append(attributes, "address", address)
	}
	switch {
	case isOfStore(known):
	case slices.Contains(ofPolicies, known.Name):
		g.notices.Warn("policy "+name, known.Name, "no decision", attributes...)
		return
	default: // the next request may be another one, so this is never over
		g.notices.Warn("request "+name, known.Name, "no decision", attributes...)
		return
	}
	if !g.inCode { // the engine knows better how Redis is
		g.failing.Store(&failing{g.clock.Now(), known})
	}
	g.notices.Warn("store", known.Name+" "+kindOf(known), "no decision", attributes...)
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
