// Package store decides requests about one key: in Redis, in memory, or, while Redis does not answer, by this process' share of a
// limit, whose debts it keeps until Redis has charged them.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// callsMax is how many calls of the script one request takes at most: enough for a state that changes hands a few
	// times in between, and few enough for its deadline.
	callsMax = 8
	// rulesKnownMax bounds the rule sets that a process remembers, of which each is a few hundred bytes.
	rulesKnownMax = 65_536
)

// Request is a request about one key.
type Request struct {
	Rules *wire.CompiledRules
	Key   string // where the state is
	kernel.Request
	Debt *DebtCharge // a debt to be charged before; nil: none
}

// Answer is a decision and the rules by which it was made.
type Answer struct {
	kernel.Verdict
	Set     *kernel.RuleSet // whose rules decided: those of the request, or later ones
	nodes   int64           // of a decision by the share: among how many nodes the limit is shared; 0: it is not
	decided int64           // what Redis reports to be left of the rule that decided; below 0 if more than its limit is in use
	left    []int64         // the same of each of several of these rules
	Charged []int64         // of the debt, for each rule of the request
	Called  []kernel.Called // requests that wait for a permit and could pass now
}

// notReported is the usage of a rule that an answer does not report.
const notReported int64 = -1

// inUse returns what an answer reports in use of each own rule. Where later rules decided, their usage counts for the own
// rules of the same names; where there are none, that of the deciding rule counts for the first own rule.
func (a Answer) inUse(own *kernel.RuleSet) (used [kernel.RulesMax]int64) {
	if len(own.Rules) == 1 && a.Set == own {
		used[0] = max(own.Rules[0].Limit()-a.decided, 0)
		return used
	}
	for i := range used {
		used[i] = notReported
	}
	none := true
	for i, left := range a.left {
		if at := own.PlaceOf(a.Set, i); at >= 0 {
			used[at], none = max(a.Set.Rules[i].Limit()-left, 0), false
		}
	}
	if none {
		used[max(own.PlaceOf(a.Set, a.Rule), 0)] = max(a.Set.Rules[a.Rule].Limit()-a.decided, 0)
	}
	return used
}

// Limit returns the limit of the rule that decided, or this process' part of it.
func (a Answer) Limit() int64 { return a.Set.Rules[a.Rule].Limit() / max(a.nodes, 1) }

// Store decides requests: Redis, or the memory of this process.
type Store interface {
	Decide(ctx context.Context, q Request) (Answer, *wire.Failure)
}

// Redis is the store that decides in Redis, by the script.
type Redis struct {
	conn     wire.Conn
	clock    func() wire.Clock
	Deadline time.Duration
	now      func() time.Time

	mu        sync.Mutex
	rules     map[string][]byte // rules by where they are announced
	sharedEnd atomic.Pointer[sharedEnd]
	start     atomic.Int64 // until when the process counts as just started, in µs since 1970; 0: it does not
	nodes     nodeActivities

	background   context.Context // ends with the gate
	connecting   atomic.Int32
	noConnection atomic.Pointer[error] // why the last one was not made, of those that had more time than a request
}

const (
	// connectWithin is how long a connection may take that is made outside of a request: as long as the client library
	// lets a dial take.
	connectWithin = 5 * time.Second
	// connectsMax is how many are made at a time: enough for a pool that grows, few for a Redis that is gone.
	connectsMax = 4
)

// ConnectUntil has connections made outside of requests until the context ends.
func (s *Redis) ConnectUntil(ctx context.Context) { s.background = ctx }

// Connect makes a connection that is ready for requests, with the script on the node that has key. A request whose
// deadline passed before it had a connection starts it: with a Redis some way off, dial, greeting and request together
// take longer than one request may, and no request would ever get a connection.
func (s *Redis) Connect(key string) {
	if s.background == nil {
		return
	}
	if s.connecting.Add(1) > connectsMax {
		s.connecting.Add(-1)
		return
	}
	go func() {
		defer s.connecting.Add(-1)
		ctx, cancel := context.WithTimeout(s.background, connectWithin)
		defer cancel()
		if err := s.conn.Load(ctx, key, false); err != nil {
			s.noConnection.Store(&err)
		} else {
			s.noConnection.Store(nil)
		}
	}()
}

// Looked keeps the error of a look for policies, which has the time to see why there is no connection. Nil: there is one.
func (s *Redis) Looked(err error) {
	switch {
	case err == nil:
		s.connected()
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !IsTimeout(err):
		s.noConnection.Store(&err)
	}
}

// connected forgets why there was no connection.
func (s *Redis) connected() {
	if s.noConnection.Load() != nil {
		s.noConnection.Store(nil)
	}
}

// Cause returns the error of a request; or why there is no connection, as one whose time ran out before it was sent does not know.
func (s *Redis) Cause(err error, sent bool) error {
	reason := s.noConnection.Load()
	switch {
	case !errors.Is(err, context.DeadlineExceeded) && !IsTimeout(err):
		return err
	case reason != nil && !sent && (wire.ErrorName(*reason) != "" || wire.NotRedis(*reason)):
		return fmt.Errorf("no answer in time; the one before: %w", *reason)
	case reason != nil && !sent:
		return fmt.Errorf("no connection: %w", *reason)
	default:
		return fmt.Errorf("no answer in time: %w", err)
	}
}

// NewRedis returns a store that decides in the Redis of a connection, by the clock that servers publish.
func NewRedis(conn wire.Conn, deadline time.Duration, now func() time.Time, by func() wire.Clock) *Redis {
	return &Redis{conn: conn, clock: by, Deadline: deadline, now: now, rules: map[string][]byte{}}
}

func (s *Redis) remember(key string, rules []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	makeRoom(s.rules, rulesKnownMax)
	s.rules[key] = rules
}

// Decide has one deadline for all the calls that a request takes. A request that passes it is overloaded while Redis answers
// others, and without an answer otherwise.
func (s *Redis) Decide(ctx context.Context, req Request) (Answer, *wire.Failure) {
	answer, f := s.do(ctx, req, s.DeadlineNow())
	if f != nil && f.Class == wire.ClassNoAnswer && s.start.Load() != 0 {
		s.start.Store(0) // it had the time of a start: Redis is not there
	}
	return answer, f
}

// do decides a request within a deadline.
func (s *Redis) do(ctx context.Context, req Request, deadline time.Duration) (Answer, *wire.Failure) {
	limited, cancel := s.withDeadline(ctx, deadline)
	defer cancel()
	activity, room := s.activityOf(limited, req.Key)
	began := monotonic()
	activity.begin(began)
	defer activity.end()
	calls := 0
	answer, f := s.callScript(limited, req, &calls)
	if f == nil {
		activity.answered(monotonic())
		s.connected()
		return answer, nil
	}
	answered := wire.ErrorName(f.Cause) != ""
	if answered || calls > 0 {
		activity.answered(monotonic())
	}
	late := !answered && (limited.Err() != nil || IsTimeout(f.Cause))
	callerErr := CallerError(ctx, late)
	switch {
	case !answered && callerErr != nil:
		return answer, &wire.Failure{Class: wire.ClassCaller, Charged: f.Charged, Cause: callerErr}
	case f.Class != wire.ClassNoAnswer || !late:
		return answer, f
	case calls > 0:
		return answer, &wire.Failure{Class: wire.ClassContended, Charged: f.Charged, Cause: f.Cause}
	}
	if !f.Charged {
		s.Connect(req.Key)
	}
	if errors.Is(f.Cause, redis.ErrPoolTimeout) || errors.Is(f.Cause, redis.ErrPoolExhausted) {
		room = 0 // other requests have all connections
	}
	cause := s.Cause(f.Cause, f.Charged)
	if activity.busy(lateRequest{began, monotonic(), deadline}, f.Charged, room) {
		return answer, &wire.Failure{Class: wire.ClassOverloaded, Charged: f.Charged, Cause: cause}
	}
	return answer, &wire.Failure{Class: f.Class, Charged: f.Charged, Cause: cause}
}

// IsTimeout reports whether an error of the client library is a time that ran out, which may come before that of the context,
// or a pool that has no connection left.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// CallerError returns the error of the caller's context if it has ended, or ended a command that is late; nil: it has not.
func CallerError(ctx context.Context, late bool) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && late && ok && time.Until(deadline) < time.Millisecond {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// ErrContended is the cause of a request that other programs kept from a decision.
var ErrContended = errors.New("no decision after 8 calls")

// callScript calls the script until it decides. calls counts the calls that were answered.
func (s *Redis) callScript(ctx context.Context, req Request, calls *int) (Answer, *wire.Failure) {
	if f := s.announce(ctx, req.Rules); f != nil {
		return Answer{}, f
	}
	blob, set, r, writer := req.Rules.Sent, req.Rules.Set, req.Request, wire.StateWriter{}
	for *calls < callsMax {
		keys, debts := []string{req.Key}, req.Debt.owedBy(req.Rules.Set, set)
		decide := wire.RequestArg(s.clock(), r, writer)
		if req.Debt != nil {
			keys = append(keys, req.Key+":"+req.Debt.id)
			decide = wire.EncodeInDebt(s.clock(), r, writer, debts)
		}
		reply, err := s.conn.Decide(ctx, keys, blob, decide)
		if errors.Is(err, wire.ErrNoString) {
			return Answer{}, &wire.Failure{Class: wire.ClassNoAnswer, Charged: true, Cause: err}
		}
		if err != nil {
			return Answer{}, wire.ClassOf(err)
		}
		*calls++
		got, err := wire.DecodeReply(reply, set, r.Verb, len(debts))
		if err != nil {
			return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: err}
		}
		switch got.Kind {
		case wire.ReplyRefused, wire.ReplyAllowed:
			charged := req.Debt.chargedOf(req.Rules.Set, set, got.Charged)
			return Answer{Verdict: got.Verdict, Set: set, decided: got.Decided, left: got.Left, Charged: charged, Called: got.Called}, nil
		case wire.ReplyUnsupported:
			return Answer{}, &wire.Failure{Class: wire.ClassCaller, Cause: wire.ErrUnsupported}
		case wire.ReplyMalformed:
			return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: errors.New("malformed: " + got.Part)}
		}
		// Other rules wrote the state.
		old, head, err := s.writingRules(ctx, req.Rules, got.Head)
		switch {
		case err != nil:
			return Answer{}, wire.ClassOf(wire.NotSent(err))
		case old == nil:
			blob, set, r, writer = req.Rules.Sent, req.Rules.Set, req.Request, wire.StateWriter{Lost: true}
		case req.Rules.RulesKey == "":
			writer = wire.StateWriter{Blob: old}
		case !isLater(head, req.Rules.Head):
			blob, set, r, writer = req.Rules.Sent, req.Rules.Set, req.Request, wire.StateWriter{Blob: wire.BlobOf(old, wire.GenerationLen, head)}
		default:
			if set, err = kernel.ParseRules(old); err != nil {
				return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: err}
			}
			if r.Windows, err = req.Rules.WindowsFor(set, r.Now); err != nil {
				return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: err}
			}
			blob, writer = wire.BlobOf(old, wire.GenerationLen, head), wire.StateWriter{}
		}
	}
	return Answer{}, &wire.Failure{Class: wire.ClassContended, Cause: ErrContended}
}

// announce puts the rules of a policy where other programs look for them, before they are first used and every ten
// minutes while they are.
func (s *Redis) announce(ctx context.Context, rules *wire.CompiledRules) *wire.Failure {
	now, before := s.now().UnixMicro(), rules.Announced.Load()
	if rules.RulesKey == "" || before > 0 && now-before < wire.AnnounceEvery.Microseconds() && now >= before {
		return nil
	}
	if !rules.Announced.CompareAndSwap(before, now) && before > 0 {
		return nil
	}
	ttlMS := rules.TTLMS
	if s.clock() != wire.ClockServer {
		ttlMS += wire.DayMS
	}
	ttlMS = min(ttlMS+wire.RulesGraceMS, wire.TTLMaxMS)
	if _, err := s.conn.Once(ctx, s.conn.Client, "set", rules.RulesKey, rules.Rules, "px", ttlMS); err != nil {
		rules.Announced.CompareAndSwap(now, before)
		return wire.ClassOf(wire.NotSent(err))
	}
	s.remember(rules.RulesKey, rules.Rules)
	return nil
}

// writingRules finds the rules that wrote a state, which begins so: for a policy the rules and the state's head, for a limit
// made in code their blob. nil: they are nowhere to be found.
func (s *Redis) writingRules(ctx context.Context, own *wire.CompiledRules, begin []byte) (rules, head []byte, err error) {
	if own.RulesKey == "" {
		if _, blob, err := wire.ParseCallerHead(begin); err == nil {
			return blob, nil, nil
		}
		return nil, nil, nil
	}
	if len(begin) < wire.PolicyHeadLen {
		return nil, nil, nil
	}
	head = begin[:wire.PolicyHeadLen]
	key := wire.RulesKey(own.Policy, head[:wire.GenerationLen])
	s.mu.Lock()
	rules = s.rules[key]
	s.mu.Unlock()
	if rules != nil {
		return rules, head, nil
	}
	if rules, err = s.conn.RulesAt(ctx, key); err != nil || rules == nil {
		return nil, nil, err
	}
	if !bytes.Equal(wire.GenerationOf(rules), head[:wire.GenerationLen]) {
		return nil, nil, nil
	}
	s.remember(key, rules)
	return rules, head, nil
}

// isLater reports whether the rules of one head are later than those of another.
func isLater(head, own []byte) bool {
	a, b := wire.ReadInt(head[wire.GenerationLen:]), wire.ReadInt(own[wire.GenerationLen:])
	return a > b || a == b && bytes.Compare(head[:wire.GenerationLen], own[:wire.GenerationLen]) > 0
}

// endAfter is the part of the deadline by which a request may come late that waits for a connection, and endAfterMax the
// most: small beside the 10 ms that a call may be late, and enough for a few requests at a time.
const (
	endAfter    = 50
	endAfterMax = 5 * time.Millisecond
)

// sharedEnd is when requests end whose deadlines are shortly before: one timer for all of them.
type sharedEnd struct {
	at   time.Time
	done chan struct{}
}

// deadlineContext is a context with a deadline. Reads and writes end at the deadline itself, and waits for a connection at the
// end.
type deadlineContext struct {
	context.Context
	deadline time.Time
	done     chan struct{}
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *deadlineContext) Done() <-chan struct{}       { return c.done }

func (c *deadlineContext) Err() error {
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

func noop() {}

// withDeadline returns a context that ends at the deadline of a request which begins now.
func (s *Redis) withDeadline(ctx context.Context, allowed time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || ctx.Done() != nil {
		return context.WithTimeout(ctx, allowed)
	}
	deadline, after := time.Now().Add(allowed), min(allowed/endAfter, endAfterMax)
	shared := s.sharedEnd.Load()
	if shared == nil || shared.at.Before(deadline) || shared.at.After(deadline.Add(after)) {
		shared = &sharedEnd{deadline.Add(after), make(chan struct{})}
		time.AfterFunc(allowed+after, func() { close(shared.done) })
		s.sharedEnd.Store(shared)
	}
	return &deadlineContext{ctx, deadline, shared.done}, noop
}
