package sluicegate

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// respConnsMax is how many connections are open to a server at a time; each has one request under way.
	respConnsMax = 64
	// respIdleWithin is how long a connection is kept: the server closes it after 5 minutes.
	respIdleWithin = 4 * time.Minute
	// respWaitMaxMS is the longest wait of the wire, which the server takes for any time.
	respWaitMaxMS = 9_007_199_254_740
)

// remoteRESP returns a gate that sends its requests to a server by the protocol of Redis.
func remoteRESP(base *url.URL, opts []Option) (*Gate, error) {
	o, err := optionsOf(forRESP, deadlineRESPDefault, opts)
	if err == nil {
		err = noParameters(base)
	}
	if err != nil {
		return nil, err
	}
	to := &redis.Options{
		Network: "tcp", Addr: base.Host, Password: o.token, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, ReadTimeout: deadlineMax, WriteTimeout: deadlineMax,
		PoolSize: respConnsMax, ConnMaxIdleTime: respIdleWithin,
	}
	switch {
	case base.Scheme == "unix":
		if to.Network, to.Addr = "unix", base.Path; to.Addr == "" {
			to.Addr = base.Opaque
		}
	case base.Port() == "":
		return nil, fmt.Errorf("%w: `%s` has no port", ErrAddress, lex.Short(base.Host))
	case base.Scheme == "resps":
		to.TLSConfig = &tls.Config{}
		if o.tls != nil {
			to.TLSConfig = o.tls.Clone()
		}
		if to.TLSConfig.ServerName == "" {
			to.TLSConfig.ServerName = base.Hostname()
		}
	}
	if to.Addr == "" {
		return nil, fmt.Errorf("%w: unix: has no path", ErrAddress)
	}
	client := redis.NewClient(to)
	return o.gate(&resp{wire.Conn{Client: client}, client, newWaitConns(*to), o}), nil
}

// resp sends requests to a server by the protocol of Redis.
type resp struct {
	conn   wire.Conn
	client *redis.Client
	waits  *waitConns
	*options
}

func (r *resp) decide(ctx context.Context, request engine.Request) (Decision, error) {
	args, err := r.command(request)
	if err != nil {
		return Decision{}, err
	}
	if request.Waits {
		return r.decideWaiting(ctx, request, args)
	}
	limited, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	got, err := r.conn.Once(limited, r.client, args...)
	if err != nil {
		return Decision{}, r.failed(ctx, limited, request, err)
	}
	return respDecision(request, got)
}

// command returns the command of a request, without the longest wait of an acquire.
func (r *resp) command(request engine.Request) (args []any, err error) {
	switch request.Verb {
	case kernel.VerbAtMost:
		return nil, notOverRESP(request.Verb.String())
	case kernel.VerbReserve:
		args = []any{"SG.CHECK", request.Policy, request.Key, "MAXWAIT", min(request.MaxWait/1000, respWaitMaxMS)}
	case kernel.VerbAcquire, kernel.VerbRelease, kernel.VerbRenew:
		args = []any{"SG." + strings.ToUpper(request.Verb.String()), request.Policy, request.Key, request.ID}
	default:
		args = []any{"SG." + strings.ToUpper(request.Verb.String()), request.Policy, request.Key}
	}
	if request.Verb != kernel.VerbReset && request.Verb != kernel.VerbRelease && request.Verb != kernel.VerbRenew {
		args = append(args, "COST", request.Cost)
	}
	if r.app != "" {
		args = append(args, "APP", r.app)
	}
	return args, nil
}

func notOverRESP(verb string) *Error {
	return newError(ErrNotOnThisWire, nil, "op: `%s` is not available over RESP", verb)
}

// failed returns the error of a request that has no answer, or an error for one.
func (r *resp) failed(ctx, limited context.Context, request engine.Request, err error) error {
	if name := wire.ErrorName(err); name != "" {
		charged := respCharged(name)
		_, detail, _ := strings.Cut(err.Error(), " ")
		switch {
		case strings.HasPrefix(detail, "op: "):
			return unsupportedBy(request.Verb.String(), request.Policy, lex.Truncate(detail)).charged(charged)
		case strings.HasPrefix(detail, "store: "):
			return noStore(charged, lex.Truncate(detail))
		default:
			return newError(ErrServer, nil, "server: %s", lex.Truncate(err.Error())).charged(charged)
		}
	}
	f := wire.ClassOf(err)
	if gone := store.CallerError(ctx, limited.Err() != nil || store.IsTimeout(err)); gone != nil {
		f = &wire.Failure{Class: wire.ClassCaller, Charged: f.Charged, Cause: gone}
	}
	return storeError(&wire.Failure{Class: f.Class, Charged: f.Charged, Cause: timeoutError(f.Cause)}, describeEndpoint(r))
}

// respCharged reads the first word of an error.
func respCharged(word string) Charged {
	switch word {
	case "NOTCHARGED", "NOAUTH", "NOPERM", "WRONGPASS":
		return ChargedNo
	case "CHARGED":
		return ChargedYes
	default: // MAYBECHARGED, a word of a later server, or the ERR of an earlier one
		return ChargedUnknown
	}
}

// The places of a reply, of which later servers may give more.
const (
	respCode = iota
	respLimit
	respRemaining
	respRetryMS
	respResetMS
	respWaitMS
	respRule
	respMode
	respOverflow
	respWhat
	respStatus
	respPlacesMin = respMode + 1
)

// errRESP is the error of a reply that is no decision. Whether something was charged is not known.
var errRESP = newError(ErrServer, nil, "server: the reply is no decision")

// respNumbers reads the numbers of a reply; false if one is missing or outside its range.
func respNumbers(list []any) (numbers [respRule]int64, ok bool) {
	for i := range numbers {
		minimum := int64(0)
		if i == respCode || i == respRetryMS {
			minimum = -1
		}
		if numbers[i], ok = list[i].(int64); !ok || numbers[i] < minimum || numbers[i] > kernel.UnitsMax {
			return numbers, false
		}
	}
	return numbers, numbers[respCode] <= 1
}

func respDecision(request engine.Request, got any) (Decision, error) {
	list, _ := got.([]any)
	if len(list) < respPlacesMin {
		return Decision{}, errRESP
	}
	numbers, ok := respNumbers(list)
	if !ok {
		return Decision{}, errRESP
	}
	if numbers[respCode] == 0 {
		// Or it is not available to this app: the wire does not tell.
		return Decision{}, newError(ErrUnknownPolicy, nil, "policy: unknown policy `%s`", request.Policy)
	}
	for len(list) <= respStatus {
		list = append(list, nil)
	}
	var texts [respStatus]string
	for _, place := range []int{respRule, respMode, respOverflow, respWhat} {
		if texts[place], ok = list[place].(string); !ok && list[place] != nil {
			return Decision{}, errRESP
		}
	}
	status, hasStatus := list[respStatus].(int64)
	if list[respStatus] != nil && !isResponseStatus(status) {
		return Decision{}, errRESP
	}
	d := Decision{
		Allowed: numbers[respCode] == 1, Wait: milliseconds(numbers[respWaitMS]), Limit: numbers[respLimit],
		Remaining: numbers[respRemaining], ResetAfter: milliseconds(numbers[respResetMS]), Policy: request.Policy,
		Rule: texts[respRule], Mode: cmp.Or(Mode(texts[respMode]), ModeStore), Overflow: Overflow{Kind: OverflowKind(texts[respOverflow])},
	}
	if retry := numbers[respRetryMS]; !d.Allowed && retry >= 0 {
		d.CanRetry, d.RetryAfter = true, milliseconds(retry)
	}
	if d.Allowed && d.Overflow.Kind == OverflowNone && request.Verb != kernel.VerbReset {
		d.Granted = request.Cost
	}
	switch d.Overflow.Kind {
	case OverflowDivert:
		d.Overflow.Target = texts[respWhat]
	case OverflowDegrade:
		if hasStatus {
			d.Overflow.Response = &Response{Status: int(status), Body: texts[respWhat]}
		} else {
			d.Overflow.Tag = texts[respWhat]
		}
	}
	return d, nil
}

// milliseconds returns a time; the longest one if it is longer than a duration can be.
func milliseconds(ms int64) time.Duration { return kernel.Span(min(ms, kernel.SpanMaxUS/1000) * 1000) }

func (r *resp) ping(ctx context.Context) error {
	return pingError(timeoutError(r.client.Ping(ctx).Err()), describeEndpoint(r))
}

func (r *resp) endpoint() (kind, address string) { return "server", r.client.Options().Addr }

func (r *resp) close() error {
	_ = r.client.Close() // it has been closed before
	r.waits.close()
	return nil
}
