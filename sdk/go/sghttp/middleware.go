// Package sghttp guards net/http handlers, and those of routers that take its middlewares, such as chi: [Middleware] limits how many requests
// are let in, and [Concurrency] how many are served at a time.
package sghttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/inflight"
	"github.com/sluicegate/sluicegate/sdk/go/internal/keyless"
)

// Option changes how a middleware works.
type Option func(*guard)

type guard struct {
	limiter *sluicegate.Limiter
	key     func(*http.Request) string
	header  string // the field that the key is, if it is one
	lacks   string // what a request without a key lacks, for the log
	source  string // what answers call the key
	cost    func(*http.Request) int64
	maxWait time.Duration // for a permit
	shared  bool          // requests without a key share a budget
	proxy   string        // the field in which proxies name the client
	trusted []netip.Prefix
	styles  []sluicegate.HeaderStyle
	over    func(http.ResponseWriter, *http.Request, sluicegate.Decision) bool
	failed  func(http.ResponseWriter, *http.Request, error)
}

// Key sets the function that returns the key of a request; "" if it has none: see [Shared]. Default: the client's
// address, as [RemoteIP] returns it. A key of more than 1,024 bytes becomes its hash. Of Key and [Header] the last one wins.
func Key(of func(*http.Request) string) Option {
	return func(g *guard) { g.key, g.header, g.lacks, g.source = of, "", "a key", "key" }
}

// Header takes the key from a header field. A request without it gets 400, unless [Shared] is given. So does a request with two
// such fields: a proxy may have added the true one behind that of the client. Bytes that are not UTF-8 become U+FFFD.
func Header(name string) Option {
	return func(g *guard) {
		g.key, g.header = func(r *http.Request) string { return strings.ToValidUTF8(r.Header.Get(name), "\ufffd") }, name
		g.lacks, g.source = "header "+name, "header `"+name+"`"
	}
}

// Shared has all requests without a key share one budget. By default such a request gets 400 and is not charged (an
// [sluicegate.ErrKeyEmpty] for [OnError]): a client that leaves the field out would otherwise take from others, or pass by its own limit.
func Shared() Option { return func(g *guard) { g.shared = true } }

// Cost sets the function that returns the cost of a request in permits. Default: 1.
func Cost(of func(*http.Request) int64) Option { return func(g *guard) { g.cost = of } }

// TrustedProxies sets the addresses, such as `10.0.0.0/8`, from which X-Forwarded-For, or the field of
// [ProxyHeader], is accepted. Default: none. It panics if an argument is neither a prefix nor an address: a name of a host is
// not resolved.
func TrustedProxies(prefixes ...string) Option {
	list := Prefixes(prefixes...)
	return func(g *guard) { g.trusted = append(g.trusted, list...) }
}

// ProxyHeader names the header field in which trusted proxies say for whom they ask: `X-Real-IP` or `CF-Connecting-IP`, for
// example. Default: X-Forwarded-For. It is read like that one, and from [TrustedProxies] only: set both. Of `Forwarded` (RFC 7239)
// the parameter `for` of each element is read; a client that is hidden there (`_name`, `unknown`) counts as the proxy that wrote it.
func ProxyHeader(name string) Option { return func(g *guard) { g.proxy = name } }

// Headers chooses the header fields of answers. Default: RateLimitHeaders.
func Headers(styles ...sluicegate.HeaderStyle) Option { return func(g *guard) { g.styles = styles } }

// OnOverflow serves requests over the limit that the policy degrades by a tag, or diverts: see Decision.Overflow. It
// returns false for what it does not serve, which is refused then.
func OnOverflow(serve func(http.ResponseWriter, *http.Request, sluicegate.Decision) bool) Option {
	return func(g *guard) { g.over = serve }
}

// OnError answers requests without a decision: an unknown policy, for example, or a server that does not answer. Default:
// 503 if there was no answer, or if no policies are published; 400 if the request has no key; and 500 for other errors. Each has a
// problem without the cause.
func OnError(answer func(http.ResponseWriter, *http.Request, error)) Option {
	return func(g *guard) { g.failed = answer }
}

// Middleware guards handlers by a limiter. What passes reaches the handler, after the decision's pause; what is refused
// gets 429 (503 if Redis did not decide, and the policy denies or there was no time), or the response that the policy degrades
// to. Both have the header fields.
func Middleware(limiter *sluicegate.Limiter, options ...Option) func(http.Handler) http.Handler {
	g := guardOf(limiter, options)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, budget, ok := g.budgetOf(w, r)
			if !ok {
				return
			}
			d, err := budget.Limiter.AllowN(ctx, budget.Key, g.cost(r))
			if g.pass(w, r, d, err) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

func guardOf(limiter *sluicegate.Limiter, options []Option) *guard {
	g := &guard{limiter: limiter, cost: func(*http.Request) int64 { return 1 }, maxWait: inflight.NoWait, proxy: forwardedFor, lacks: "an address", source: "address"}
	g.failed = g.fail
	g.key = func(r *http.Request) string { return remoteIP(r, g.proxy, g.trusted) }
	for _, option := range options {
		option(g)
	}
	return g
}

// budgetOf returns the budget of a request, and the context to ask with; false if it answered the request, whose key is not clear.
func (g *guard) budgetOf(w http.ResponseWriter, r *http.Request) (context.Context, inflight.Budget, bool) {
	if g.header != "" && len(r.Header.Values(g.header)) > 1 {
		problem(w, http.StatusBadRequest, g.source+": is given more than once")
		return nil, inflight.Budget{}, false
	}
	key := KeyOf(g.key(r))
	switch {
	case key != "":
		return r.Context(), inflight.Budget{Limiter: g.limiter, Key: key}, true
	case g.shared:
		return r.Context(), inflight.Budget{Limiter: g.limiter.Shared()}, true
	default: // it gets no decision
		return keyless.With(r.Context(), "request without "+g.lacks, "sghttp.Shared()"), inflight.Budget{Limiter: g.limiter}, true
	}
}

// pass reports whether a request passes by a decision, after its pause, and answers it otherwise.
func (g *guard) pass(w http.ResponseWriter, r *http.Request, d sluicegate.Decision, err error) bool {
	if err == nil && d.Allowed {
		err = d.Sleep(r.Context())
	}
	if err != nil {
		g.failed(w, r, err)
		return false
	}
	for name, value := range d.Headers(g.styles...) {
		w.Header().Set(name, value)
	}
	if d.Allowed {
		return true
	}
	if response := d.Overflow.Response; response != nil {
		for name, value := range response.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(response.Status)
		_, _ = w.Write([]byte(response.Body)) // fails if the client is gone
		return false
	}
	if d.Overflow.Kind != sluicegate.OverflowNone && g.over != nil && g.over(w, r, d) {
		return false
	}
	status, body := d.Problem()
	answer(w, status, body)
	return false
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", sluicegate.ProblemType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client is gone
}

// fail answers a request without a decision. The cause is for the program, not for the client.
func (g *guard) fail(w http.ResponseWriter, _ *http.Request, err error) {
	if passesLater(err) {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, []byte(unavailable))
		return
	}
	if errors.Is(err, sluicegate.ErrKeyEmpty) {
		problem(w, http.StatusBadRequest, g.source+": is missing")
		return
	}
	problem(w, http.StatusInternalServerError, "")
}

// passesLater reports whether an error is none of the request or of the program.
func passesLater(err error) bool {
	for _, of := range []error{sluicegate.ErrNotCharged, sluicegate.ErrPerhapsCharged, sluicegate.ErrInterrupted, sluicegate.ErrServer, sluicegate.ErrNothingPublished} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// unavailable is the problem of a request without a decision.
const unavailable = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
	`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"detail":"retry in 1 s"}`

func problem(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct { // of texts and a number
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{"about:blank", http.StatusText(status), status, detail})
	answer(w, status, body)
}
