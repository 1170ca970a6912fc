// Package store decides questions about one key: in Redis, in memory, or, while Redis does not answer, by this process' share of a
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
	// callsMax is how many calls of the script one question takes at most: enough for a state that changes hands a few
	// times in between, and few enough for its deadline.
	callsMax = 8
	// rulesKnownMax bounds the rule sets that a process remembers, of which each is a few hundred bytes.
	rulesKnownMax = 65_536
)

// Question is a request about one key.
type Question struct {
	Plan *wire.Plan
	Key  string // where the state is
	kernel.Request
	Debt *DebtCharge // a debt to be charged before; nil: none
}

// Answer is a decision and the rules by which it was made.
type Answer struct {
	kernel.Verdict
	Set     *kernel.RuleSet // whose rules decided: those of the question, or later ones
	nodes   int64           // of a decision by the share: among how many nodes the limit is shared; 0: it is not
	decided int64           // what Redis says to be left of the rule that decided; below 0 if more than its limit is in use
	left    []int64         // the same of each of several of these rules
	Charged []int64         // of the debt, for each rule of the question
}

// notReported is what an answer says to be in use of a rule of which it says nothing.
const notReported int64 = -1

// inUse returns what an answer says to be in use of each own rule. Where later rules decided, their usage counts for the own
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

// Store decides questions: Redis, or the memory of this process.
type Store interface {
	Decide(ctx context.Context, q Question) (Answer, *wire.Failure)
}

// Redis is the store that decides in Redis, by the script.
type Redis struct {
	conn     wire.Conn
	clock    func() wire.Clock
	Deadline time.Duration
	now      func() time.Time

	mu     sync.Mutex
	known  map[string][]byte // rules by where they are announced
	end    atomic.Pointer[end]
	start  atomic.Int64 // until when the process counts as just started, in µs since 1970; 0: it does not
	pulses pulses

	background   context.Context // ends with the gate
	connecting   atomic.Int32
	noConnection atomic.Pointer[error] // why the last one was not made, of those that had more time than a question
}

const (
	// connectWithin is how long a connection may take that is made outside of a question: as long as the client library
	// lets a dial take.
	connectWithin = 5 * time.Second
	// connectsMax is how many are made at a time: enough for a pool that grows, few for a Redis that is gone.
	connectsMax = 4
)

// ConnectUntil has connections made outside of questions until the context ends.
func (s *Redis) ConnectUntil(ctx context.Context) { s.background = ctx }

// Connect makes a connection that is ready for questions, with the script on the node that has key. A question whose
// deadline passed before it had a connection starts it: with a Redis some way off, dial, greeting and question together
// take longer than one question may, and no question would ever get a connection.
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

// Cause returns the error of a question; or why there is no connection, as one whose time ran out before it was sent does not know.
func (s *Redis) Cause(err error, sent bool) error {
	why := s.noConnection.Load()
	switch {
	case !errors.Is(err, context.DeadlineExceeded) && !IsTimeout(err):
		return err
	case why != nil && !sent && (wire.ErrorName(*why) != "" || wire.NotRedis(*why)):
		return fmt.Errorf("no answer in time; the one before: %w", *why)
	case why != nil && !sent:
		return fmt.Errorf("no connection: %w", *why)
	default:
		return fmt.Errorf("no answer in time: %w", err)
	}
}

// NewRedis returns a store that asks the Redis of a connection, by the clock that servers publish.
func NewRedis(conn wire.Conn, deadline time.Duration, now func() time.Time, by func() wire.Clock) *Redis {
	return &Redis{conn: conn, clock: by, Deadline: deadline, now: now, known: map[string][]byte{}}
}

func (s *Redis) remember(key string, rules []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	makeRoom(s.known, rulesKnownMax)
	s.known[key] = rules
}

// Decide has one deadline for all the calls that a question takes. A question that passes it is overloaded while Redis answers
// others, and without an answer otherwise.
func (s *Redis) Decide(ctx context.Context, q Question) (Answer, *wire.Failure) {
	a, f := s.ask(ctx, q, s.DeadlineNow())
	if f != nil && f.Class == wire.ClassNoAnswer && s.start.Load() != 0 {
		s.start.Store(0) // it had the time of a start: Redis is not there
	}
	return a, f
}

// ask asks a question that has so much time.
func (s *Redis) ask(ctx context.Context, q Question, deadline time.Duration) (Answer, *wire.Failure) {
	limited, cancel := s.within(ctx, deadline)
	defer cancel()
	p, room := s.pulseOf(limited, q.Key)
	began := ticks()
	p.begin(began)
	defer p.end()
	calls := 0
	a, f := s.decideWithin(limited, q, &calls)
	if f == nil {
		p.answered(ticks())
		s.connected()
		return a, nil
	}
	answered := wire.ErrorName(f.Cause) != ""
	if answered || calls > 0 {
		p.answered(ticks())
	}
	late := !answered && (limited.Err() != nil || IsTimeout(f.Cause))
	gone := Gone(ctx, late)
	switch {
	case !answered && gone != nil:
		return a, &wire.Failure{Class: wire.ClassCaller, Charged: f.Charged, Cause: gone}
	case f.Class != wire.ClassNoAnswer || !late:
		return a, f
	case calls > 0:
		return a, &wire.Failure{Class: wire.ClassContended, Charged: f.Charged, Cause: f.Cause}
	}
	if !f.Charged {
		s.Connect(q.Key)
	}
	if errors.Is(f.Cause, redis.ErrPoolTimeout) || errors.Is(f.Cause, redis.ErrPoolExhausted) {
		room = 0 // other questions have all connections
	}
	why := s.Cause(f.Cause, f.Charged)
	if p.busy(lateness{began, ticks(), deadline}, f.Charged, room) {
		return a, &wire.Failure{Class: wire.ClassOverloaded, Charged: f.Charged, Cause: why}
	}
	return a, &wire.Failure{Class: f.Class, Charged: f.Charged, Cause: why}
}

// IsTimeout reports whether an error of the client library is a time that ran out, which may come before that of the context,
// or a pool that has no connection left.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Gone returns how the caller's context has ended, or ended a command that is late; nil: it has not.
func Gone(ctx context.Context, late bool) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && late && ok && time.Until(deadline) < time.Millisecond {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// ErrContended is the cause of a question that other programs kept from a decision.
var ErrContended = errors.New("no decision after 8 calls")

// decideWithin asks until the script decides. calls counts the calls that were answered.
func (s *Redis) decideWithin(ctx context.Context, q Question, calls *int) (Answer, *wire.Failure) {
	if f := s.announce(ctx, q.Plan); f != nil {
		return Answer{}, f
	}
	blob, set, r, wrote := q.Plan.Sent, q.Plan.Set, q.Request, wire.Foreign{}
	for *calls < callsMax {
		keys, debts := []string{q.Key}, q.Debt.owedBy(q.Plan.Set, set)
		decide := wire.RequestArg(s.clock(), r, wrote)
		if q.Debt != nil {
			keys = append(keys, q.Key+":"+q.Debt.id)
			decide = wire.EncodeInDebt(s.clock(), r, wrote, debts)
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
			charged := q.Debt.chargedOf(q.Plan.Set, set, got.Charged)
			return Answer{Verdict: got.Verdict, Set: set, decided: got.Decided, left: got.Left, Charged: charged}, nil
		case wire.ReplyUnsupported:
			return Answer{}, &wire.Failure{Class: wire.ClassCaller, Cause: wire.ErrUnsupported}
		case wire.ReplyMalformed:
			return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: errors.New("malformed: " + got.Part)}
		}
		// Other rules wrote the state.
		old, head, err := s.writer(ctx, q.Plan, got.Head)
		switch {
		case err != nil:
			return Answer{}, wire.ClassOf(wire.NotSent(err))
		case old == nil:
			blob, set, r, wrote = q.Plan.Sent, q.Plan.Set, q.Request, wire.Foreign{Lost: true}
		case q.Plan.RulesKey == "":
			wrote = wire.Foreign{Blob: old}
		case !later(head, q.Plan.Head):
			blob, set, r, wrote = q.Plan.Sent, q.Plan.Set, q.Request, wire.Foreign{Blob: wire.BlobOf(old, wire.GenerationLen, head)}
		default:
			if set, err = kernel.ParseRules(old); err != nil {
				return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: err}
			}
			if r.Windows, err = q.Plan.WindowsFor(set, r.Now); err != nil {
				return Answer{}, &wire.Failure{Class: wire.ClassThisKey, Cause: err}
			}
			blob, wrote = wire.BlobOf(old, wire.GenerationLen, head), wire.Foreign{}
		}
	}
	return Answer{}, &wire.Failure{Class: wire.ClassContended, Cause: ErrContended}
}

// announce puts the rules of a policy where other programs look for them, before they are first used and every ten
// minutes while they are.
func (s *Redis) announce(ctx context.Context, p *wire.Plan) *wire.Failure {
	now, before := s.now().UnixMicro(), p.Announced.Load()
	if p.RulesKey == "" || before > 0 && now-before < wire.AnnounceEvery.Microseconds() && now >= before {
		return nil
	}
	if !p.Announced.CompareAndSwap(before, now) && before > 0 {
		return nil
	}
	ttlMS := p.TTLMS
	if s.clock() != wire.ClockServer {
		ttlMS += wire.DayMS
	}
	ttlMS = min(ttlMS+wire.RulesGraceMS, wire.TTLMaxMS)
	if _, err := s.conn.Once(ctx, s.conn.Client, "set", p.RulesKey, p.Rules, "px", ttlMS); err != nil {
		p.Announced.CompareAndSwap(now, before)
		return wire.ClassOf(wire.NotSent(err))
	}
	s.remember(p.RulesKey, p.Rules)
	return nil
}

// writer finds the rules that wrote a state, which begins so: for a policy the rules and the state's head, for a limit
// made in code their blob. nil: they are nowhere to be found.
func (s *Redis) writer(ctx context.Context, p *wire.Plan, begin []byte) (rules, head []byte, err error) {
	if p.RulesKey == "" {
		if _, blob, err := wire.ParseCallerHead(begin); err == nil {
			return blob, nil, nil
		}
		return nil, nil, nil
	}
	if len(begin) < wire.PolicyHeadLen {
		return nil, nil, nil
	}
	head = begin[:wire.PolicyHeadLen]
	key := wire.RulesKey(p.Policy, head[:wire.GenerationLen])
	s.mu.Lock()
	rules = s.known[key]
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

// later reports whether the rules of one head are later than those of another.
func later(head, own []byte) bool {
	a, b := wire.ReadInt(head[wire.GenerationLen:]), wire.ReadInt(own[wire.GenerationLen:])
	return a > b || a == b && bytes.Compare(head[:wire.GenerationLen], own[:wire.GenerationLen]) > 0
}

// endAfter is the part of the deadline by which a question may come late that waits for a connection, and endAfterMax the
// most: small beside the 10 ms that a call may be late, and enough for a few questions at a time.
const (
	endAfter    = 50
	endAfterMax = 5 * time.Millisecond
)

// end is when questions end whose deadlines are shortly before: one timer for all of them.
type end struct {
	at   time.Time
	done chan struct{}
}

// limited is a context with a deadline. Reads and writes end at the deadline itself, and waits for a connection at the
// end.
type limited struct {
	context.Context
	deadline time.Time
	done     chan struct{}
}

func (c *limited) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *limited) Done() <-chan struct{}       { return c.done }

func (c *limited) Err() error {
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

func nothing() {}

// within returns a context that ends at the deadline of a question which begins now.
func (s *Redis) within(ctx context.Context, allowed time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || ctx.Done() != nil {
		return context.WithTimeout(ctx, allowed)
	}
	deadline, after := time.Now().Add(allowed), min(allowed/endAfter, endAfterMax)
	e := s.end.Load()
	if e == nil || e.at.Before(deadline) || e.at.After(deadline.Add(after)) {
		e = &end{deadline.Add(after), make(chan struct{})}
		time.AfterFunc(allowed+after, func() { close(e.done) })
		s.end.Store(e)
	}
	return &limited{ctx, deadline, e.done}, nothing
}
