package sluicegate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// callsMax is how many calls of the script one question takes at most: enough for a state that changes hands a few
	// times in between, and few enough for its deadline.
	callsMax = 8
	// rulesKnownMax bounds the rule sets that a process remembers, of which each is a few hundred bytes.
	rulesKnownMax = 65_536
)

// question is a request about one key.
type question struct {
	plan *plan
	key  string // where the state is
	request
	bill *bill // a debt to be charged before; nil: none
}

// answer is a decision and the rules by which it was made.
type answer struct {
	verdict
	set     *ruleSet // whose rules decided: those of the question, or later ones
	left    []int64  // what remains of each of several of these rules
	charged []int64  // of the bill, for each rule of the question
}

// notSaid is what an answer says to be in use of a rule of which it says nothing.
const notSaid int64 = -1

// inUse gives what an answer says to be in use of each own rule. Where later rules decided, their usage counts for the own
// rules of the same names; where there are none, that of the deciding rule counts for the first own rule.
func (a answer) inUse(own *ruleSet) (said [rulesMax]int64) {
	if len(own.rules) == 1 && a.set == own {
		said[0] = max(own.rules[0].limit()-a.remaining, 0)
		return said
	}
	for i := range said {
		said[i] = notSaid
	}
	none := true
	for i, left := range a.left {
		if at := own.placeOf(a.set, i); at >= 0 {
			said[at], none = max(a.set.rules[i].limit()-left, 0), false
		}
	}
	if none {
		said[max(own.placeOf(a.set, a.rule), 0)] = max(a.set.rules[a.rule].limit()-a.remaining, 0)
	}
	return said
}

// placeOf gives the place of the rule that is called as one of another rule set is; -1: there is none.
func (s *ruleSet) placeOf(other *ruleSet, i int) int {
	if s == other {
		return i
	}
	for at := range s.rules {
		if s.rules[at].nameHash == other.rules[i].nameHash {
			return at
		}
	}
	return -1
}

// store decides questions: Redis, or the memory of this process.
type store interface {
	ask(ctx context.Context, q question) (answer, *failure)
}

// redisStore asks Redis.
type redisStore struct {
	conn     redisConn
	clock    func() clock
	deadline time.Duration
	now      func() time.Time

	mu    sync.Mutex
	known map[string][]byte // rules by where they are announced
	end   atomic.Pointer[end]

	life       context.Context // ends with the gate
	connecting atomic.Int32
}

const (
	// connectWithin is how long a connection may take that is made outside of a question: as long as the client library
	// lets a dial take.
	connectWithin = 5 * time.Second
	// connectsMax is how many are made at a time: enough for a pool that grows, few for a Redis that is gone.
	connectsMax = 4
)

// connect makes a connection that is ready for questions, with the script on the node that has key. A question whose
// deadline passed before it had a connection starts it: with a Redis some way off, dial, greeting and question together
// take longer than one question may, and no question would ever get a connection.
func (s *redisStore) connect(key string) {
	if s.life == nil {
		return
	}
	if s.connecting.Add(1) > connectsMax {
		s.connecting.Add(-1)
		return
	}
	go func() {
		defer s.connecting.Add(-1)
		ctx, cancel := context.WithTimeout(s.life, connectWithin)
		defer cancel()
		_ = s.conn.load(ctx, key, false) // the next question finds out
	}()
}

func newRedisStore(conn redisConn, deadline time.Duration, now func() time.Time, by func() clock) *redisStore {
	return &redisStore{conn: conn, clock: by, deadline: deadline, now: now, known: map[string][]byte{}}
}

func (s *redisStore) remember(key string, rules []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.known {
		if len(s.known) < rulesKnownMax {
			break
		}
		delete(s.known, other)
	}
	s.known[key] = rules
}

// ask has one deadline for all the calls that a question takes. A connection has one call at a time, so a Redis that lets
// the deadline pass is silent, and never only busy.
func (s *redisStore) ask(ctx context.Context, q question) (answer, *failure) {
	limited, cancel := s.within(ctx)
	defer cancel()
	calls := 0
	a, f := s.askWithin(limited, q, &calls)
	if f == nil {
		return a, nil
	}
	said := errorName(f.cause) != ""
	late := !said && (limited.Err() != nil || isTimeout(f.cause))
	switch {
	case !said && gone(ctx, late):
		cause := ctx.Err()
		if cause == nil {
			cause = context.DeadlineExceeded
		}
		return a, &failure{classCaller, f.charged, cause}
	case f.class != classNoAnswer || !late:
		return a, f
	case calls > 0:
		return a, &failure{classContended, f.charged, f.cause}
	default:
		if !f.charged {
			s.connect(q.key)
		}
		return a, f
	}
}

// isTimeout says whether an error of the client library is a time that ran out: it may come before that of the context.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, redis.ErrPoolTimeout)
}

// gone says whether the caller's context has ended, or is what ended a command that is late.
func gone(ctx context.Context, late bool) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || late && ok && time.Until(deadline) < time.Millisecond
}

var (
	errContended = errors.New("no decision after 8 calls")
	errCalendar  = errors.New("later rules have a calendar that this program does not know")
)

// askWithin asks until the script decides. calls counts the calls that were answered.
func (s *redisStore) askWithin(ctx context.Context, q question, calls *int) (answer, *failure) {
	if f := s.announce(ctx, q.plan); f != nil {
		return answer{}, f
	}
	blob, set, r, wrote := q.plan.sent, q.plan.set, q.request, foreign{}
	for *calls < callsMax {
		keys, debts := []string{q.key}, q.bill.owedBy(q.plan.set, set)
		ask := requestArg(s.clock(), r, wrote)
		if q.bill != nil {
			keys = append(keys, q.key+":"+q.bill.id)
			ask = encodeInDebt(s.clock(), r, wrote, debts)
		}
		said, err := s.conn.decide(ctx, keys, blob, ask)
		if errors.Is(err, errNoString) {
			return answer{}, &failure{classNoAnswer, true, err}
		}
		if err != nil {
			return answer{}, classOf(err)
		}
		*calls++
		got, err := decodeReply(said, set, r.verb, len(debts))
		if err != nil {
			return answer{}, &failure{classThisKey, false, err}
		}
		switch got.kind {
		case replyRefused, replyAllowed:
			return answer{got.verdict, set, got.left, q.bill.chargedOf(q.plan.set, set, got.charged)}, nil
		case replyUnsupported:
			return answer{}, &failure{classCaller, false, errUnsupported}
		case replyMalformed:
			return answer{}, &failure{classThisKey, false, errors.New("malformed: " + got.part)}
		}
		// Other rules wrote the state.
		old, head, err := s.writer(ctx, q.plan, got.head)
		switch {
		case err != nil:
			return answer{}, classOf(notSent{err})
		case old == nil:
			blob, set, r, wrote = q.plan.sent, q.plan.set, q.request, foreign{lost: true}
		case q.plan.rulesKey == "":
			wrote = foreign{blob: old}
		case !later(head, q.plan.head):
			blob, set, r, wrote = q.plan.sent, q.plan.set, q.request, foreign{blob: blobOf(old, generationLen, head)}
		default:
			if set, err = parseRules(old); err != nil {
				return answer{}, &failure{classThisKey, false, err}
			}
			if r.windows, err = windowsOr(q.plan, set, r.now); err != nil {
				return answer{}, &failure{classThisKey, false, err}
			}
			blob, wrote = blobOf(old, generationLen, head), foreign{}
		}
	}
	return answer{}, &failure{classContended, false, errContended}
}

func windowsOr(p *plan, set *ruleSet, now int64) ([]window, error) {
	if windows, ok := p.windowsFor(set, now); ok {
		return windows, nil
	}
	return nil, errCalendar
}

// announce puts the rules of a policy where other programs look for them, before they are first used and every ten
// minutes while they are.
func (s *redisStore) announce(ctx context.Context, p *plan) *failure {
	now, before := s.now().UnixMicro(), p.announced.Load()
	if p.rulesKey == "" || before > 0 && now-before < announceEvery.Microseconds() && now >= before {
		return nil
	}
	if !p.announced.CompareAndSwap(before, now) && before > 0 {
		return nil
	}
	life := p.lifeMS
	if s.clock() != clockServer {
		life += dayMS
	}
	if err := s.conn.announce(ctx, p.rulesKey, p.rules, min(life+rulesGraceMS, lifeMaxMS)); err != nil {
		p.announced.CompareAndSwap(now, before)
		return classOf(notSent{err})
	}
	s.remember(p.rulesKey, p.rules)
	return nil
}

// writer finds the rules that wrote a state, which begins so: for a policy the rules and the state's head, for a limit
// made in code their blob. nil: they are nowhere to be found.
func (s *redisStore) writer(ctx context.Context, p *plan, begin []byte) (rules, head []byte, err error) {
	if p.rulesKey == "" {
		if _, blob, err := parseCallerHead(begin); err == nil {
			return blob, nil, nil
		}
		return nil, nil, nil
	}
	if len(begin) < policyHeadLen {
		return nil, nil, nil
	}
	head = begin[:policyHeadLen]
	key := rulesKey(p.policy, head[:generationLen])
	s.mu.Lock()
	rules = s.known[key]
	s.mu.Unlock()
	if rules != nil {
		return rules, head, nil
	}
	if rules, err = s.conn.rulesAt(ctx, key); err != nil || rules == nil {
		return nil, nil, err
	}
	if !bytes.Equal(generationOf(rules), head[:generationLen]) {
		return nil, nil, nil
	}
	s.remember(key, rules)
	return rules, head, nil
}

// later says whether the rules of one head are later than those of another.
func later(head, own []byte) bool {
	a, b := readInt(head[generationLen:]), readInt(own[generationLen:])
	return a > b || a == b && bytes.Compare(head[:generationLen], own[:generationLen]) > 0
}
