package sluicegate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// respConnsMax is how many connections are open to a server at a time; each has one request under way.
	respConnsMax = 64
	// respIdleWithin is how long a connection is kept: the server closes it after 5 minutes.
	respIdleWithin = 4 * time.Minute
	// respWaitMaxMS is the longest wait of the wire, which the server takes for any time.
	respWaitMaxMS = 9_007_199_254_740
)

// remoteRESP returns a gate that asks a server by the protocol of Redis.
func remoteRESP(base *url.URL, opts []Option) (*Gate, error) {
	o, err := optionsOf(forRESP, deadlineRESPDefault, opts)
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
		return nil, fmt.Errorf("server: `%s` has no port", short(base.Host))
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
		return nil, errors.New("server: unix: has no path")
	}
	client := redis.NewClient(to)
	return &Gate{&resp{redisConn{client}, client, o}, false, o.observer}, nil
}

// resp asks a server by the protocol of Redis.
type resp struct {
	conn   redisConn
	client *redis.Client
	*options
}

func (r *resp) decide(ctx context.Context, a ask, id string) (Decision, error) {
	var args []any
	switch a.verb {
	case verbAtMost:
		return Decision{}, notOverRESP(a.verb.String())
	case verbReserve:
		args = []any{"SG.CHECK", a.limiter.name, a.key, "MAXWAIT", min(a.maxWait/1000, respWaitMaxMS)}
	case verbAcquire, verbRelease, verbRenew:
		args = []any{"SG." + strings.ToUpper(a.verb.String()), a.limiter.name, a.key, id}
	default:
		args = []any{"SG." + strings.ToUpper(a.verb.String()), a.limiter.name, a.key}
	}
	if a.verb != verbReset && a.verb != verbRelease && a.verb != verbRenew {
		args = append(args, "COST", a.cost)
	}
	if r.app != "" {
		args = append(args, "APP", r.app)
	}
	limited, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	got, err := r.conn.once(limited, r.client, args...)
	if err != nil {
		return Decision{}, r.failed(ctx, limited, a, err)
	}
	return respDecision(a, got)
}

func notOverRESP(verb string) *Error {
	return newError(ErrNotOnThisWire, nil, "op: `%s` is not available over RESP", verb)
}

// failed gives the error of a request that has no answer, or an error for one.
func (r *resp) failed(ctx, limited context.Context, a ask, err error) error {
	if name := errorName(err); name != "" {
		charged := respCharged(name)
		_, detail, _ := strings.Cut(err.Error(), " ")
		switch {
		case strings.HasPrefix(detail, "op: "):
			return unsupported(a.verb, a.limiter.name).charged(charged)
		case strings.HasPrefix(detail, "store: "):
			return noStore(charged, outside(detail))
		default:
			return newError(ErrServer, nil, "server: %s", outside(err.Error())).charged(charged)
		}
	}
	f := classOf(err)
	if gone(ctx, limited.Err() != nil || isTimeout(err)) {
		cause := ctx.Err()
		if cause == nil {
			cause = context.DeadlineExceeded
		}
		f = &failure{classCaller, f.charged, cause}
	}
	return storeError(f)
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
		least := int64(0)
		if i == respCode || i == respRetryMS {
			least = -1
		}
		if numbers[i], ok = list[i].(int64); !ok || numbers[i] < least || numbers[i] > unitsMax {
			return numbers, false
		}
	}
	return numbers, numbers[respCode] <= 1
}

func respDecision(a ask, got any) (Decision, error) {
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
		return Decision{}, newError(ErrUnknownPolicy, nil, "policy: unknown policy `%s`", a.limiter.name)
	}
	for len(list) <= respStatus {
		list = append(list, nil)
	}
	for _, place := range []int{respRule, respMode, respOverflow, respWhat} {
		if _, ok := list[place].(string); !ok && list[place] != nil {
			return Decision{}, errRESP
		}
	}
	status, hasStatus := list[respStatus].(int64)
	if list[respStatus] != nil && !servable(status) {
		return Decision{}, errRESP
	}
	text := func(place int) string {
		s, _ := list[place].(string)
		return s
	}
	d := Decision{
		Allowed: numbers[respCode] == 1, Wait: milliseconds(numbers[respWaitMS]), Limit: numbers[respLimit],
		Remaining: numbers[respRemaining], ResetAfter: milliseconds(numbers[respResetMS]), Policy: a.limiter.name,
		Rule: text(respRule), Mode: Mode(text(respMode)), Overflow: Overflow{Kind: OverflowKind(text(respOverflow))},
	}
	if d.Mode == "" {
		d.Mode = ModeStore
	}
	if retry := numbers[respRetryMS]; !d.Allowed && retry >= 0 {
		d.CanRetry, d.RetryAfter = true, milliseconds(retry)
	}
	if d.Allowed && d.Overflow.Kind == OverflowNone && a.verb != verbReset {
		d.Granted = a.cost
	}
	switch d.Overflow.Kind {
	case OverflowDivert:
		d.Overflow.Target = text(respWhat)
	case OverflowDegrade:
		if hasStatus {
			d.Overflow.Response = &Response{Status: int(status), Body: text(respWhat)}
		} else {
			d.Overflow.Tag = text(respWhat)
		}
	}
	return d, nil
}

// milliseconds gives a time; the longest one if it is longer than a duration can be.
func milliseconds(ms int64) time.Duration { return span(min(ms, spanMaxUS/1000) * 1000) }

func (r *resp) close() error { return r.client.Close() }
