// Package wire is the protocol of a program with Redis: the names of keys, the bytes of rules, requests and replies,
// and the calls of the script. The pages are spec/redis.md and spec/redis-protocol.md.
package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// appendInt appends the lowest size bytes of n, the lowest first.
func appendInt(out []byte, n int64, size int) []byte {
	for range size {
		out, n = append(out, byte(n)), n>>8
	}
	return out
}

// ReadInt reads an integer that appendInt wrote.
func ReadInt[T string | []byte](in T) (n int64) {
	for i := len(in) - 1; i >= 0; i-- {
		n = n<<8 | int64(in[i])
	}
	return n
}

// hashLen is the length of a hash as text.
const hashLen = 22

// appendHash appends the hash of texts, each after its length, as 22 characters.
func appendHash(out []byte, texts ...string) []byte {
	var place [256]byte // on the stack: most policies and keys fit
	in := place[:0]
	for _, text := range texts {
		in = binary.LittleEndian.AppendUint64(in, uint64(len(text)))
		in = append(in, text...)
	}
	sum := sha256.Sum256(in)
	return base64.RawURLEncoding.AppendEncode(out, sum[:16])
}

// hashed returns the hash of texts.
func hashed(texts ...string) string {
	var out [hashLen]byte
	return string(appendHash(out[:0], texts...))
}

// Place is the name of a state in Redis, which needs no memory of its own while no request is sent.
type Place [len("sg:{") + hashLen + len("}")]byte

// PlaceOf returns where the state of a key under a policy is; an empty key is the budget that all share.
func PlaceOf(policy, key string) (out Place) {
	text := append(out[:0], "sg:{"...)
	text = appendHash(text, policy, key)
	_ = append(text, '}')
	return out
}

// StateKey is the same as a text.
func StateKey(policy, key string) string {
	at := PlaceOf(policy, key)
	return string(at[:])
}

// RulesKey is where Redis keeps the rules of a generation of a policy.
func RulesKey(policy string, generation []byte) string {
	return "sg:rules:" + hashed(policy) + ":" + hex.EncodeToString(generation)
}

// NewID returns a random id of a permit or a debt.
func NewID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Clock is by whose time Redis decides.
type Clock byte

const (
	ClockServer Clock = 0
	ClockGiven  Clock = 1
	ClockClient Clock = 2
)

// StateWriter is the rules that wrote a state, once the script needs them.
type StateWriter struct {
	Blob []byte // nil: not known, or lost
	Lost bool
}

func (f StateWriter) appendTo(out []byte) []byte {
	if f.Blob != nil {
		return append(append(out, 1), f.Blob...)
	}
	if f.Lost {
		return append(out, 2)
	}
	return out
}

// appendEnd appends what every request ends with.
func appendEnd(out []byte, c Clock, r kernel.Request, f StateWriter) []byte {
	if c != ClockServer {
		out = appendInt(out, r.Now, 7)
	}
	for _, w := range r.Windows {
		out = appendInt(appendInt(out, w.From, 7), w.Till, 7)
	}
	return f.appendTo(out)
}

// EncodeRequest returns the bytes of a request.
func EncodeRequest(c Clock, r kernel.Request, f StateWriter) []byte {
	out := make([]byte, 0, 64)
	out = append(out, byte(r.Verb), byte(c))
	out = appendInt(out, max(r.Cost, 1), 4)
	switch r.Verb {
	case kernel.VerbReserve:
		out = appendInt(out, r.MaxWait, 7)
	case kernel.VerbAcquire, kernel.VerbRelease, kernel.VerbRenew:
		out = append(out, r.Permit[:]...)
	case kernel.VerbWait, kernel.VerbLeave:
		out = append(append(out, r.Permit[:]...), r.Process[:]...)
	}
	return appendEnd(out, c, r, f)
}

// checkArg is the check of one permit by Redis' time, which most requests are, as an argument of a command.
var checkArg any = EncodeRequest(ClockServer, kernel.Request{Verb: kernel.VerbCheck, Cost: 1}, StateWriter{})

// RequestArg is encodeRequest as an argument of a command.
func RequestArg(c Clock, r kernel.Request, f StateWriter) any {
	if c == ClockServer && r.Verb == kernel.VerbCheck && r.Cost == 1 && len(r.Windows) == 0 && f.Blob == nil && !f.Lost {
		return checkArg
	}
	return EncodeRequest(c, r, f)
}

const (
	codeDebit  byte = 11
	codeInDebt byte = 12
)

// EncodeInDebt returns the bytes of a debt of so many permits of each rule, and of the request after it.
func EncodeInDebt(c Clock, r kernel.Request, f StateWriter, debts []int64) []byte {
	debit := append(make([]byte, 0, 64), codeDebit, byte(c))
	debit = appendInt(debit, 1, 4)
	for _, d := range debts {
		debit = appendInt(debit, d, 4)
	}
	debit = appendEnd(debit, c, r, f)
	out := appendInt([]byte{codeInDebt}, int64(len(debit)), 2)
	return append(append(out, debit...), EncodeRequest(c, r, f)...)
}

// replyKind is the first byte of a reply.
type replyKind byte

const (
	ReplyRefused     replyKind = 0
	ReplyAllowed     replyKind = 1
	ReplyUnsupported replyKind = 2
	ReplyUnknown     replyKind = 3
	ReplyMalformed   replyKind = 4
)

// Reply is a reply of the script about one key.
type Reply struct {
	Kind    replyKind
	Verdict kernel.Verdict
	Decided int64   // what is left of the rule that decided; below 0 if more than its limit is in use
	Left    []int64 // the same of each of several rules; nil: of one
	Charged []int64 // of a debt, for each rule
	Head    []byte  // of an unknown state: how it begins
	Part    string  // what is malformed
	Called  []kernel.Called
}

var errReply = errors.New("not a reply of the script")

const (
	decisionLen = 27 // of one rule
	leftLen     = 7  // of what is left of a rule
	chargedLen  = 4  // of what a rule was charged of a debt
	calledLen   = 24 // of a request that waits for a permit
	neverBits   = 1<<56 - 1
)

// readLeft reads what is left of a rule, a two's complement number: below 0 if more than the limit is in use.
func readLeft(in string) int64 {
	const above = 64 - 8*leftLen // bits
	return ReadInt(in) << above >> above
}

// readEach reads so many integers of a size, one after another.
func readEach(in string, count, size int, read func(string) int64) []int64 {
	if count == 0 {
		return nil
	}
	out := make([]int64, count)
	for i := range out {
		out[i] = read(in[size*i:][:size])
	}
	return out
}

// DecodeReply reads a reply of the script to a request under these rules, of which so many owed a debt (0: none).
func DecodeReply(in string, set *kernel.RuleSet, v kernel.Verb, debts int) (Reply, error) {
	if len(in) == 0 {
		return Reply{}, errReply
	}
	out := Reply{Kind: replyKind(in[0])}
	switch out.Kind {
	case ReplyUnsupported:
		if len(in) != 1 || set.Supports(v) {
			return Reply{}, errReply
		}
	case ReplyUnknown:
		if out.Head = []byte(in[1:]); len(out.Head) == 0 {
			return Reply{}, errReply
		}
	case ReplyMalformed:
		out.Part = in[1:]
	case ReplyRefused, ReplyAllowed:
		several := len(set.Rules)
		if several == 1 {
			several = 0
		}
		// Behind it may be requests that wait for a permit and could pass now.
		called := len(in) - (decisionLen + leftLen*several + chargedLen*debts)
		if called < 0 || called%calledLen != 0 || int(in[1]) >= len(set.Rules) {
			return Reply{}, errReply
		}
		out.Decided = readLeft(in[13:20])
		decided := kernel.Verdict{
			Allowed: out.Kind == ReplyAllowed, Rule: int(in[1]), Granted: ReadInt(in[2:6]),
			Remaining: max(out.Decided, 0), ResetAfter: ReadInt(in[20:27]),
		}
		if span := ReadInt(in[6:13]); decided.Allowed {
			decided.Wait = span
		} else if decided.Retry = span; span == neverBits {
			decided.Retry = kernel.Never
		}
		out.Verdict = decided
		out.Left = readEach(in[decisionLen:], several, leftLen, readLeft)
		out.Charged = readEach(in[decisionLen+leftLen*several:], debts, chargedLen, ReadInt)
		out.Called, _ = ReadCalled(in[len(in)-called:])
	default:
		return Reply{}, errReply
	}
	return out, nil
}

// CallsChannel is where processes call requests of each other that wait for a permit.
const CallsChannel = "sg:calls"

// ReadCalled reads requests that are called, one after another; false if these are other bytes.
func ReadCalled(in string) (out []kernel.Called, ok bool) {
	if len(in)%calledLen != 0 {
		return nil, false
	}
	for ; len(in) > 0; in = in[calledLen:] {
		var c kernel.Called
		copy(c.Process[:], in[copy(c.Permit[:], in):])
		out = append(out, c)
	}
	return out, true
}

// CalledBytes returns requests that are called as ReadCalled reads them.
func CalledBytes(called []kernel.Called) []byte {
	out := make([]byte, 0, calledLen*len(called))
	for _, c := range called {
		out = append(append(out, c.Permit[:]...), c.Process[:]...)
	}
	return out
}

// BlobOf surrounds rules with the length of their states' head, and the head. The first own bytes of the head identify the
// rules; 0: all of it.
func BlobOf(rules []byte, own byte, head []byte) []byte {
	out := append([]byte{own, byte(len(head)), byte(len(head) >> 8)}, rules...)
	return append(out, head...)
}

const (
	GenerationLen = 6
	PolicyHeadLen = 11
)

// GenerationOf returns the generation that identifies the rules of a policy.
func GenerationOf(rules []byte) []byte {
	sum := sha256.Sum256(rules)
	return sum[:GenerationLen]
}

const (
	instantLen = 5 // bytes in a head
	// InstantMaxMS is the latest instant of a head, in 2060.
	InstantMaxMS = 1<<(8*instantLen) - 1
)

// PolicyHead is the head of states under a policy's rules that were taken over at an instant, in ms since 2026.
func PolicyHead(rules []byte, instantMS int64) []byte {
	head := append([]byte(nil), GenerationOf(rules)...)
	return appendInt(head, max(instantMS, 0), instantLen)
}

// InstantOf returns the instant in ms since 2026 began; 0 before that.
func InstantOf(t time.Time) int64 { return max(t.UnixMilli()-kernel.Year2026US/1000, 0) }

// callerHead returns the rules of a limit that a caller brings along in short: every state under them begins with that.
func callerHead(s *kernel.RuleSet) []byte {
	var out []byte
	alone := len(s.Rules) == 1 && s.Carry == kernel.CarryUsage && s.Rules[0].NameHash == kernel.HashOfName(CallerRule)
	if !alone {
		out = append(out, 128+16*byte(s.Carry)+byte(len(s.Rules)))
	}
	for _, r := range s.Rules {
		out = append(out, 16*r.Flags+r.Code, byte(len(r.Numbers)))
		if !alone {
			out = append(out, r.NameHash[:]...)
		}
		for _, n := range r.Numbers {
			if n == math.Trunc(n) && kernel.InRange(n, 0, kernel.UnitsMax) {
				out = binary.AppendUvarint(out, uint64(n)+1)
				continue
			}
			out = append(out, 0)
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(n))
		}
	}
	return out
}

// CallerRule is the name of a rule that has none, of a limit that a caller brings along.
const CallerRule = "limit"

// ParseCallerHead reads the rules with which the state of a caller's limit begins, and returns their blob.
func ParseCallerHead(in []byte) (*kernel.RuleSet, []byte, error) {
	all, count, c, alone := in, 1, kernel.CarryUsage, true
	if len(in) > 0 && in[0] >= 128 {
		c, count, alone = kernel.Carry(in[0]>>4&7), int(in[0]&15), false
		in = in[1:]
	}
	if count < 1 || count > kernel.RulesMax || c > kernel.CarryReset {
		return nil, nil, kernel.ErrBlob
	}
	var rules []kernel.Rule
	for range count {
		if len(in) < 2 {
			return nil, nil, kernel.ErrBlob
		}
		code, flags, numbers, name := in[0]&15, in[0]>>4, make([]float64, in[1]), kernel.HashOfName(CallerRule)
		in = in[2:]
		if !alone {
			if len(in) < 8 {
				return nil, nil, kernel.ErrBlob
			}
			name, in = [8]byte(in[:8]), in[8:]
		}
		for i := range numbers {
			n, size := binary.Uvarint(in)
			if size <= 0 {
				return nil, nil, kernel.ErrBlob
			}
			in = in[size:]
			if numbers[i] = float64(n) - 1; n > 0 {
				continue
			}
			if len(in) < 8 {
				return nil, nil, kernel.ErrBlob
			}
			numbers[i], in = math.Float64frombits(binary.LittleEndian.Uint64(in)), in[8:]
		}
		r, err := kernel.RuleOf(code, flags, name, numbers)
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, r)
	}
	set := kernel.NewRuleSet(rules, c)
	return set, BlobOf(set.Bytes(), 0, all[:len(all)-len(in)]), nil
}
