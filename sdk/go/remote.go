package sluicegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
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

// Remote returns a gate that asks a server: at `https://gate:8080` with JSON over HTTP, which has everything; or with the
// protocol of Redis, which is faster, at `resp://gate:6380`, `resps://gate:6380` (TLS) or `unix:/run/gate.sock`. That has
// neither AllowAtMost nor what only a server over HTTP does (ErrNotOnThisWire), its times are in milliseconds, Refund does
// not say how much came back, and a policy for other apps is an unknown one.
//
// The server follows the policies, and decides also while its store does not answer. If the server does not answer, the
// request gets an error whose Charged tells whether it was charged.
func Remote(address string, opts ...Option) (*Gate, error) {
	base, err := url.Parse(address)
	if err == nil && (base.Scheme == "resp" || base.Scheme == "resps" || base.Scheme == "unix") {
		return remoteRESP(base, opts)
	}
	o, wrong := optionsOf(forHTTP, deadlineRemoteDefault, opts)
	if wrong != nil {
		return nil, wrong
	}
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("server: `%s` is not an address of http, https, resp, resps or unix", short(address))
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
	return &Gate{&remote{strings.TrimSuffix(base.String(), "/") + "/v1/", &own, o}, false, o.observer}, nil
}

type remote struct {
	base   string
	client *http.Client
	*options
}

type remoteAsk struct {
	Policy    string  `json:"policy"`
	Key       *string `json:"key,omitempty"`
	App       string  `json:"app,omitempty"`
	Cost      int64   `json:"cost,omitempty"`
	MaxWaitMS *int64  `json:"max_wait_ms,omitempty"`
	ID        string  `json:"id,omitempty"`
}

func (r *remote) decide(ctx context.Context, a ask, id string) (Decision, error) {
	if !utf8.ValidString(a.key) || !utf8.ValidString(id) {
		return Decision{}, newError(ErrKeyText, nil, "key: is not UTF-8")
	}
	body := remoteAsk{Policy: a.limiter.name, App: r.app, ID: id}
	if a.key != "" {
		body.Key = &a.key
	}
	path := a.verb.String()
	switch a.verb {
	case verbReserve:
		path = "check"
		ms := a.maxWait / 1000
		body.MaxWaitMS = &ms
		body.Cost = a.cost
	case verbReset, verbRelease, verbRenew:
	default:
		body.Cost = a.cost
	}
	answer, err := r.post(ctx, path, body)
	if err != nil {
		return Decision{}, err
	}
	if answer.status != http.StatusOK {
		return Decision{}, r.problem(answer.status, answer.said, a.verb.String(), a.limiter.name)
	}
	var got remoteAnswer
	if json.Unmarshal(answer.said, &got) != nil || !got.complete() {
		return Decision{}, noDecision()
	}
	return got.decision(a.limiter.name, parseQuotas(answer.header.Get("RateLimit-Policy"))), nil
}

// httpAnswer is what a server answered.
type httpAnswer struct {
	status int
	header http.Header
	said   []byte
}

// post sends a request once. The error says whether it was perhaps charged.
func (r *remote) post(ctx context.Context, path string, body any) (httpAnswer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return httpAnswer{}, storeError(&failure{classCaller, false, err})
	}
	limited, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodPost, r.base+path, bytes.NewReader(text))
	if err != nil {
		return httpAnswer{}, storeError(&failure{classCaller, false, err})
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent)
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	// A POST is not sent again by the transport, unless nothing of it was written.
	answer, err := r.client.Do(request)
	if err != nil && ctx.Err() != nil {
		return httpAnswer{}, storeError(&failure{classCaller, !isDial(err), ctx.Err()})
	}
	if err != nil {
		return httpAnswer{}, storeError(&failure{classNoAnswer, !isDial(err), errors.Unwrap(err)})
	}
	defer answer.Body.Close()
	most := int64(answerMax)
	if path == batchPath {
		most = answerBatchMax
	}
	said, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil && ctx.Err() != nil {
		return httpAnswer{}, storeError(&failure{classCaller, true, ctx.Err()})
	}
	if err != nil {
		return httpAnswer{}, storeError(&failure{classNoAnswer, true, err})
	}
	if int64(len(said)) > most {
		err := newError(ErrServer, nil, "server: %d the answer is longer than %d bytes", answer.StatusCode, most)
		err.Status = answer.StatusCode
		return httpAnswer{}, err
	}
	return httpAnswer{answer.StatusCode, answer.Header, said}, nil
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

// problemOf reads a problem of an HTTP status. What is none says nothing of what was charged.
func problemOf(status int, said []byte) remoteProblem {
	var problem remoteProblem
	if json.Unmarshal(said, &problem) != nil {
		problem = remoteProblem{}
	}
	if problem.Status < 100 || problem.Status > 599 {
		problem.Status = status
	}
	if problem.Detail == "" {
		problem.Detail = "no detail"
	}
	if problem.Charged != ChargedNo && problem.Charged != ChargedYes {
		problem.Charged = ChargedUnknown
	}
	return problem
}

// problem gives the error of an answer that is no decision: one of an HTTP status, or an item of a batch.
func (r *remote) problem(status int, said []byte, verb, policy string) error {
	problem := problemOf(status, said)
	detail := outside(problem.Detail)
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
		err = newError(ErrUnsupportedVerb, nil, "op: `%s` is not supported by policy `%s`", verb, policy)
	case bad && strings.HasPrefix(problem.Detail, "max_wait"):
		err = newError(ErrMaxWaitRange, nil, "%s", detail)
	default:
		err = newError(ErrServer, nil, "server: %d %s", problem.Status, detail)
		err.Status = problem.Status
	}
	return err.charged(problem.Charged)
}

// noStore is the error of a server whose store does not answer.
func noStore(charged Charged, detail string) *Error {
	if charged == ChargedNo {
		return newError(ErrNotCharged, nil, "%s", detail)
	}
	return newError(ErrPerhapsCharged, nil, "%s", detail).charged(charged)
}

func (r *remote) close() error {
	r.client.CloseIdleConnections()
	return nil
}
