package sluicegate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/store"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// answerMax bounds what is read of an answer: a policy's response has at most 64 KiB, escaped in JSON.
	answerMax = 1 << 20
	// answerBatchMax bounds the answer to a batch, which may bring a hundred of those along.
	answerBatchMax = 8 << 20
	// idleConnsMax is how many connections are kept to the server.
	idleConnsMax = 64
	// idleWithin is how long they are kept: the server closes them after 30 s, and a request that meets that has no answer.
	idleWithin = 20 * time.Second
	userAgent  = "sluicegate-go/0.1.0"
)

// Remote returns a gate that sends its requests to a server: at `https://gate:8080` with JSON over HTTP, which has everything; or with the
// protocol of Redis, which is faster, at `resp://gate:6380`, `resps://gate:6380` (TLS) or `unix:/run/gate.sock`. That has
// neither AllowAtMost nor what only a server over HTTP does (ErrNotOnThisWire), its times are in milliseconds, Refund does
// not report how much came back, and a policy for other apps is an unknown one.
//
// The server follows the policies, and decides also while its store does not answer. If the server does not answer, the
// request gets an error whose Charged is whether it was charged.
func Remote(address string, opts ...Option) (*Gate, error) {
	base, err := url.Parse(address)
	if err == nil && (base.Scheme == "resp" || base.Scheme == "resps" || base.Scheme == "unix") {
		return remoteRESP(base, opts)
	}
	o, optionErr := optionsOf(forHTTP, deadlineRemoteDefault, opts)
	if optionErr != nil {
		return nil, optionErr
	}
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%w: `%s`; expected http, https, resp, resps or unix", ErrAddress, lex.Short(withoutPassword(address)))
	}
	if err := noParameters(base); err != nil {
		return nil, err
	}
	if strings.ContainsFunc(o.token, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return nil, errors.New("token: has a character that a header field cannot have")
	}
	if port, err := strconv.Atoi(cmp.Or(base.Port(), "0")); err != nil || port > math.MaxUint16 {
		return nil, fmt.Errorf("%w: `%s`: its port is above 65535", ErrAddress, lex.Short(base.Host))
	}
	client := o.client
	if client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = idleConnsMax
		transport.IdleConnTimeout = idleWithin
		transport.TLSClientConfig = o.tls
		client = &http.Client{Transport: transport}
	}
	own := *client
	// A redirect would send the request twice.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return o.gate(&remote{strings.TrimSuffix(base.String(), "/") + "/v1/", base.Host, &own, o}), nil
}

type remote struct {
	base   string
	host   string
	client *http.Client
	*options
}

// withoutPassword returns an address as messages show it: what is before an `@` may be a password.
func withoutPassword(address string) string {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		scheme, rest = "", address
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "***" + rest[at:]
	}
	if !found {
		return rest
	}
	return scheme + "://" + rest
}

// noParameters returns an error that names the first parameter of an address, which has none: use options instead.
func noParameters(address *url.URL) error {
	if address.RawQuery == "" {
		return nil
	}
	name, _, _ := strings.Cut(address.RawQuery, "&")
	name, _, _ = strings.Cut(name, "=")
	return fmt.Errorf("%w: `%s`: unknown parameter `%s`; an address has none: use options such as Deadline",
		ErrAddress, lex.Short(address.Scheme+"://"+address.Host), lex.Short(name))
}

type remoteRequest struct {
	Policy    string  `json:"policy"`
	Key       *string `json:"key,omitempty"`
	App       string  `json:"app,omitempty"`
	Cost      int64   `json:"cost,omitempty"`
	MaxWaitMS *int64  `json:"max_wait_ms,omitempty"`
	ID        string  `json:"id,omitempty"`
}

// body returns the body of a request. JSON has no text that is not UTF-8.
func (r *remote) body(policy, key, id string, cost int64) (remoteRequest, error) {
	if !utf8.ValidString(key) || !utf8.ValidString(id) {
		return remoteRequest{}, newError(ErrKeyText, nil, "key: is not UTF-8")
	}
	body := remoteRequest{Policy: policy, App: r.app, Cost: cost, ID: id}
	if key != "" {
		body.Key = &key
	}
	return body, nil
}

func (r *remote) decide(ctx context.Context, request engine.Request) (Decision, error) {
	body, err := r.body(request.Policy, request.Key, request.ID, request.Cost)
	if err != nil {
		return Decision{}, err
	}
	switch request.Verb {
	case kernel.VerbReset, kernel.VerbRelease, kernel.VerbRenew:
		body.Cost = 0
	}
	if request.Verb == kernel.VerbReserve || request.Waits {
		ms := request.MaxWait / 1000
		body.MaxWaitMS = &ms
	}
	call := remoteCall{verb: request.Verb.String(), policy: request.Policy, body: body}
	if request.Waits {
		call.held = kernel.Span(request.MaxWait)
	}
	var got remoteAnswer
	header, err := r.call(ctx, call, &got)
	if err != nil {
		return Decision{}, err
	}
	return got.decision(request.Policy, parseQuotas(header.Get("RateLimit-Policy"))), nil
}

// remoteCall is a request to a server.
type remoteCall struct {
	verb, policy string
	body         any
	held         time.Duration // how long the server may hold it back, beside the deadline
}

// call sends a request, and reads an answer that must be complete.
func (r *remote) call(ctx context.Context, call remoteCall, into interface{ complete() bool }) (http.Header, error) {
	path := call.verb
	if call.verb == kernel.VerbReserve.String() {
		path = kernel.VerbCheck.String() // with a longest wait
	}
	answer, err := r.post(ctx, path, call.body, call.held)
	switch {
	case err != nil:
		return nil, err
	case answer.status != http.StatusOK:
		return nil, r.problem(answer.status, answer.body, call.verb, call.policy)
	case json.Unmarshal(answer.body, into) != nil || !into.complete():
		return nil, notADecision()
	}
	return answer.header, nil
}

// httpAnswer is what a server answered.
type httpAnswer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a request once, which the server may hold back. The error has whether it was perhaps charged.
func (r *remote) post(ctx context.Context, path string, value any, held time.Duration) (httpAnswer, error) {
	payload, err := json.Marshal(value)
	if err != nil {
		return httpAnswer{}, r.unanswered(ctx, false, err)
	}
	limited, cancel := context.WithTimeout(ctx, r.deadline+held)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodPost, r.base+path, bytes.NewReader(payload))
	if err != nil {
		return httpAnswer{}, r.unanswered(ctx, false, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent)
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	// A POST is not sent again by the transport, unless nothing of it was written.
	answer, err := r.client.Do(request)
	if err != nil {
		return httpAnswer{}, r.unanswered(ctx, !isDial(err), errors.Unwrap(err))
	}
	defer answer.Body.Close()
	most := int64(answerMax)
	if path == batchPath {
		most = answerBatchMax
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return httpAnswer{}, r.unanswered(ctx, true, err)
	}
	if int64(len(body)) > most {
		err := newError(ErrServer, nil, "server: %d the answer is longer than %d bytes", answer.StatusCode, most)
		err.Status = answer.StatusCode
		return httpAnswer{}, err
	}
	return httpAnswer{answer.StatusCode, answer.Header, body}, nil
}

// unanswered is the error of a request without an answer: if the caller's context has ended, it is the cause.
func (r *remote) unanswered(ctx context.Context, charged bool, cause error) *Error {
	if ctx.Err() != nil {
		return storeError(&wire.Failure{Class: wire.ClassCaller, Charged: charged, Cause: ctx.Err()}, "")
	}
	return storeError(&wire.Failure{Class: wire.ClassNoAnswer, Charged: charged, Cause: timeoutError(cause)}, describeEndpoint(r))
}

// timeoutError wraps the error of a time that ran out with what it means; others are returned as they are.
func timeoutError(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !store.IsTimeout(err) {
		return err
	}
	return fmt.Errorf("no answer in time: %w", err)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// remoteProblem is an answer that is no decision.
type remoteProblem struct {
	Type    string  `json:"type"`
	Status  int     `json:"status"`
	Detail  string  `json:"detail"`
	Charged Charged `json:"charged"`
}

// problem returns the error of an answer that is no decision: one of an HTTP status, or an item of a batch. A body that is not a
// problem leaves open what was charged.
func (r *remote) problem(status int, body []byte, verb, policy string) error {
	var problem remoteProblem
	if json.Unmarshal(body, &problem) != nil {
		problem = remoteProblem{}
	}
	if problem.Status < 100 || problem.Status > 599 {
		problem.Status = status
	}
	if problem.Charged != ChargedNo && problem.Charged != ChargedYes {
		problem.Charged = ChargedUnknown
	}
	detail := lex.Truncate(cmp.Or(problem.Detail, "no detail"))
	bad := problem.Status == http.StatusBadRequest
	var err *Error
	switch {
	case problem.Type == "urn:sluicegate:problem:unknown-policy":
		err = newError(ErrUnknownPolicy, nil, "%s", detail)
	case problem.Type == "urn:sluicegate:problem:not-configured" && r.app == "" && r.token == "":
		err = newError(ErrAppMissing, nil, "%s", detail)
	case problem.Type == "urn:sluicegate:problem:not-configured":
		err = newError(ErrPolicyNotAvailable, nil, "%s", detail)
	case problem.Type == "urn:sluicegate:problem:no-store":
		err = noStore(problem.Charged, detail)
	case bad && strings.HasPrefix(problem.Detail, "op:"):
		err = unsupportedBy(verb, policy, detail)
	case bad && strings.HasPrefix(problem.Detail, "max_wait"):
		err = newError(ErrMaxWaitRange, nil, "%s", detail)
	default:
		err = newError(ErrServer, nil, "server: %d %s", problem.Status, detail)
		err.Status = problem.Status
	}
	return err.charged(problem.Charged)
}

// unsupportedBy is the error of a verb that the rules of a policy do not have, with the reason that the server gives.
func unsupportedBy(verb, policy, detail string) *Error {
	_, reason, _ := strings.Cut(detail, "is not supported by this policy")
	return newError(ErrUnsupportedVerb, nil, "op: `%s` is not supported by policy `%s`%s", verb, policy, reason)
}

// noStore is the error of a server whose store does not answer.
func noStore(charged Charged, detail string) *Error {
	if charged == ChargedNo {
		return newError(ErrNotCharged, nil, "%s", detail)
	}
	return newError(ErrPerhapsCharged, nil, "%s", detail).charged(charged)
}

// ping returns an error unless the server is ready.
func (r *remote) ping(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.base, "v1/")+"readyz", nil)
	if err != nil {
		return pingError(err, describeEndpoint(r))
	}
	request.Header.Set("User-Agent", userAgent)
	answer, err := r.client.Do(request)
	if err != nil {
		return pingError(timeoutError(errors.Unwrap(err)), describeEndpoint(r))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, answerMax)) // for the next request on this connection
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		err := newError(ErrServer, nil, "server: %d is not ready", answer.StatusCode).charged(ChargedNo)
		err.Status = answer.StatusCode
		return err
	}
	return nil
}

func (r *remote) endpoint() (kind, address string) { return "server", r.host }

func (r *remote) close() error {
	r.client.CloseIdleConnections()
	return nil
}
