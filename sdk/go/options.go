package sluicegate

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
)

const (
	deadlineDefault       = 50 * time.Millisecond
	deadlineRemoteDefault = 200 * time.Millisecond
	deadlineRESPDefault   = 50 * time.Millisecond
	deadlineMax           = 10 * time.Second
	pingWithin            = time.Second
	nodesMax              = math.MaxUint32
)

// The constructors that options may belong to.
const (
	forDirect = "Direct"
	forHTTP   = "Remote over HTTP"
	forRESP   = "Remote over RESP"
	forMemory = "InMemory"
)

// Option configures a gate. The constructor returns an error if a value is out of range, and an [OptionError] if the option does
// not belong to it. If an option is given more than once, the last one wins; [Policies], [Compiled], [Rules] and [Observer] add
// to those before.
type Option func(*options)

// OptionError is the error of an option that was given to a constructor to which it does not belong.
type OptionError struct {
	// Option is the name of the option, and Constructor that of the constructor that it was given to.
	Option, Constructor string
	// BelongsTo has the constructors that the option belongs to.
	BelongsTo []string
}

// Error returns the text.
func (e *OptionError) Error() string {
	return fmt.Sprintf("option: `%s` does not belong to %s, but to %s", e.Option, e.Constructor, strings.Join(e.BelongsTo, ", "))
}

// Unwrap returns ErrOption.
func (e *OptionError) Unwrap() error { return ErrOption }

type options struct {
	constructor string
	misplaced   error

	app       string
	appSet    bool
	nodes     int64
	nodesSet  bool
	deadline  time.Duration
	cold      bool
	logger    *slog.Logger
	clock     Clock
	names     []string
	compiled  []string
	rules     []policyRules
	token     string
	client    *http.Client
	tls       *tls.Config
	observers []func(context.Context, Observation)
}

// Clock is the time by which a gate works. A test brings its own.
type Clock interface {
	// Now returns the present time; it should not jump.
	Now() time.Time
	// Sleep waits for d, or returns the error of the context if that ends before.
	Sleep(ctx context.Context, d time.Duration) error
}

// policyRules is a policy made in code.
type policyRules struct {
	policy string
	rules  []Rule
}

// optionOf makes an option of some constructors.
func optionOf(name string, set func(*options), constructors ...string) Option {
	return func(o *options) {
		if o.misplaced == nil && !slices.Contains(constructors, o.constructor) {
			o.misplaced = &OptionError{name, o.constructor, constructors}
		}
		set(o)
	}
}

// App sets the app of the program: 1 to 128 bytes of `a-z0-9._-`. A policy is available to the apps that it names.
func App(name string) Option { return func(o *options) { o.app, o.appSet = name, true } }

// Nodes sets among how many nodes a limit is shared while Redis does not answer: the servers and the processes of programs on
// this Redis. 1 to 2^32 - 1. Default: `store.nodes` of the servers, if it is set, or else 1. Programs are not counted: without
// either, each of them admits the whole limit then. For [Direct].
func Nodes(n int64) Option {
	return optionOf("Nodes", func(o *options) { o.nodes, o.nodesSet = n, true }, forDirect)
}

// Deadline sets the longest time of a request to Redis or to the server: 1 ms to 10 s. Default: 50 ms, and 200 ms for
// [Remote] over HTTP. A request that takes longer is perhaps charged; it is never repeated. A gate of [Direct] has at least
// 500 ms for the first 5 s after its start, or until a request has no answer; unless [NoWarmUp] is given. For [Direct] and [Remote].
func Deadline(d time.Duration) Option {
	return optionOf("Deadline", func(o *options) { o.deadline = d }, forDirect, forHTTP, forRESP)
}

// NoWarmUp has [Direct] return without warming up. By default it sends Redis some hundred requests that change nothing, with
// up to 32 connections and for half a second at most, and a request has at least 500 ms for the first 5 s. Without that the
// first requests of a process may pass their deadline beside a healthy Redis, and then the share decides in addition to Redis:
// more passes than the limit. For [Direct].
func NoWarmUp() Option {
	return optionOf("NoWarmUp", func(o *options) { o.cold = true }, forDirect)
}

// Logger sets the logger of the gate; nil: none. Default: what slog.Default returns as the gate is made. What goes wrong has one line
// a minute for each cause, with the address, the error, and what decides meanwhile; and one line when it is over. `left_out` in
// a line counts those of its cause that were left out since. Keys and passwords are never logged. The client of Redis has a log of
// its own: see redis.SetLogger.
func Logger(logger *slog.Logger) Option {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return func(o *options) { o.logger = logger }
}

// WithClock sets the clock of the gate. For tests.
func WithClock(clock Clock) Option { return func(o *options) { o.clock = clock } }

// Policies limits which policies the program reads from Redis. Default: all. For [Direct].
func Policies(names ...string) Option {
	return optionOf("Policies", func(o *options) { o.names = append(o.names, names...) }, forDirect)
}

// Compiled adds the policies of a file of records, as `sluicegate policies compile` writes it. For [InMemory].
func Compiled(text string) Option {
	return optionOf("Compiled", func(o *options) { o.compiled = append(o.compiled, text) }, forMemory)
}

// Rules adds a policy of 1 to 8 rules made in code; several rules need a name each. It replaces a policy of that name of
// [Compiled]. For [InMemory].
func Rules(policy string, rules ...Rule) Option {
	return optionOf("Rules", func(o *options) { o.rules = append(o.rules, policyRules{policy, rules}) }, forMemory)
}

// Token sets the bearer token of the app. For [Remote].
func Token(token string) Option {
	return optionOf("Token", func(o *options) { o.token = token }, forHTTP, forRESP)
}

// TLS sets how a server is known over https and resps, for an authority of your own, for example. For [Remote].
func TLS(config *tls.Config) Option {
	return optionOf("TLS", func(o *options) { o.tls = config }, forHTTP, forRESP)
}

// HTTPClient sets the HTTP client. [TLS] has no effect on it: set its transport. For [Remote] over HTTP.
func HTTPClient(client *http.Client) Option {
	return optionOf("HTTPClient", func(o *options) { o.client = client }, forHTTP)
}

// Observation is a request and its result. It does not contain the key.
type Observation struct {
	// Policy is the name of the policy or limit.
	Policy string
	// Verb is the kind of request: `check`, `reserve`, `at_most`, `peek`, `refund`, `reset`, `acquire`, `release`, `renew`,
	// `settle` or `explain`.
	Verb string
	// Decision is the answer, if Err is nil.
	Decision Decision
	// Err is why there is no decision.
	Err error
	// Took is the duration of the call, including the time in a queue.
	Took time.Duration
}

// Observer adds a function that is called after every request, in its goroutine: for metrics and traces. Several are called
// in the order of the options.
func Observer(observe func(context.Context, Observation)) Option {
	return func(o *options) {
		if observe != nil {
			o.observers = append(o.observers, observe)
		}
	}
}

// gate makes the gate of a decider.
func (o *options) gate(d decider) *Gate {
	g := &Gate{decider: d, inCode: o.constructor == forDirect || o.constructor == forMemory, clock: o.clock, observers: o.observers}
	g.notices = notice.New(o.logger, o.clock.Now)
	if _, isMachines := o.clock.(engine.WallClock); !isMachines {
		g.ownClock = o.clock
	}
	return g
}

// optionsOf applies the options of a constructor and checks them.
func optionsOf(constructor string, deadline time.Duration, list []Option) (*options, error) {
	o := &options{constructor: constructor, deadline: deadline, logger: slog.Default(), clock: engine.NewWallClock()}
	for _, option := range list {
		option(o)
	}
	switch {
	case o.misplaced != nil:
		return nil, o.misplaced
	case o.appSet && !lex.IsName(o.app):
		return nil, newError(ErrAppName, nil, "app: `%s` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`", lex.Short(o.app))
	case o.nodesSet && (o.nodes < 1 || o.nodes > nodesMax):
		return nil, newError(ErrNodesRange, nil, "nodes: `%d` is outside 1..=4294967295", o.nodes)
	case o.deadline < time.Millisecond || o.deadline > deadlineMax:
		return nil, newError(ErrDeadlineRange, nil, "deadline: `%d` is outside 1..=10000 ms", o.deadline.Milliseconds())
	}
	return o, nil
}
