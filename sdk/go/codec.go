package sluicegate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"math"
)

// appendInt appends the lowest size bytes of n, the lowest first.
func appendInt(out []byte, n int64, size int) []byte {
	for range size {
		out, n = append(out, byte(n)), n>>8
	}
	return out
}

// readInt reads an integer that appendInt wrote.
func readInt[T string | []byte](in T) (n int64) {
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

// hashed gives the hash of texts.
func hashed(texts ...string) string {
	var out [hashLen]byte
	return string(appendHash(out[:0], texts...))
}

// place is the name of a state in Redis, which needs no memory of its own as long as nobody is asked.
type place [len("sg:{") + hashLen + len("}")]byte

// placeOf gives where the state of a key under a policy is; an empty key is the budget that all share.
func placeOf(policy, key string) (out place) {
	text := append(out[:0], "sg:{"...)
	text = appendHash(text, policy, key)
	_ = append(text, '}')
	return out
}

// stateKey is the same as a text.
func stateKey(policy, key string) string {
	at := placeOf(policy, key)
	return string(at[:])
}

// rulesKey is where Redis keeps the rules of a generation of a policy.
func rulesKey(policy string, generation []byte) string {
	return "sg:rules:" + hashed(policy) + ":" + hex.EncodeToString(generation)
}

// permitOf is the hash of a permit's id.
func permitOf(id string) (hash permitID) {
	h := fnv.New128a()
	h.Write([]byte(id))
	h.Sum(hash[:0])
	return hash
}

// zoneHash is the number by which rules know a zone: the lower 48 bits of the hash of its name.
func zoneHash(zone string) float64 {
	hash := permitOf(zone)
	return float64(binary.BigEndian.Uint64(hash[8:]) & (1<<48 - 1))
}

// clock is by whose time Redis decides.
type clock byte

const (
	clockServer clock = 0
	clockGiven  clock = 1
	clockClient clock = 2
)

// foreign says which rules wrote a state, once the script has asked.
type foreign struct {
	blob []byte // nil: not known, or lost
	lost bool
}

func (f foreign) appendTo(out []byte) []byte {
	if f.blob != nil {
		return append(append(out, 1), f.blob...)
	}
	if f.lost {
		return append(out, 2)
	}
	return out
}

// appendEnd appends what every request ends with.
func appendEnd(out []byte, c clock, r request, f foreign) []byte {
	if c != clockServer {
		out = appendInt(out, r.now, 7)
	}
	for _, w := range r.windows {
		out = appendInt(appendInt(out, w.from, 7), w.till, 7)
	}
	return f.appendTo(out)
}

// encodeRequest gives the bytes of a request.
func encodeRequest(c clock, r request, f foreign) []byte {
	out := make([]byte, 0, 64)
	out = append(out, byte(r.verb), byte(c))
	out = appendInt(out, max(r.cost, 1), 4)
	switch r.verb {
	case verbReserve:
		out = appendInt(out, r.maxWait, 7)
	case verbAcquire, verbRelease, verbRenew:
		out = append(out, r.permit[:]...)
	}
	return appendEnd(out, c, r, f)
}

// checkArg is the check of one permit by Redis' time, which most requests are, as an argument of a command.
var checkArg any = encodeRequest(clockServer, request{verb: verbCheck, cost: 1}, foreign{})

// requestArg is encodeRequest as an argument of a command.
func requestArg(c clock, r request, f foreign) any {
	if c == clockServer && r.verb == verbCheck && r.cost == 1 && len(r.windows) == 0 && f.blob == nil && !f.lost {
		return checkArg
	}
	return encodeRequest(c, r, f)
}

const (
	codeDebit  byte = 11
	codeInDebt byte = 12
)

// encodeInDebt gives the bytes of a debt of so many permits of each rule, and of the request after it.
func encodeInDebt(c clock, r request, f foreign, debts []int64) []byte {
	debit := append(make([]byte, 0, 64), codeDebit, byte(c))
	debit = appendInt(debit, 1, 4)
	for _, d := range debts {
		debit = appendInt(debit, d, 4)
	}
	debit = appendEnd(debit, c, r, f)
	out := appendInt([]byte{codeInDebt}, int64(len(debit)), 2)
	return append(append(out, debit...), encodeRequest(c, r, f)...)
}

// replyKind is the first byte of a reply.
type replyKind byte

const (
	replyRefused     replyKind = 0
	replyAllowed     replyKind = 1
	replyUnsupported replyKind = 2
	replyUnknown     replyKind = 3
	replyMalformed   replyKind = 4
)

// reply is what the script says about one key.
type reply struct {
	kind    replyKind
	verdict verdict
	left    []int64 // what remains of each of several rules; nil: of one, whose verdict says it
	charged []int64 // of a debt, for each rule
	head    []byte  // of an unknown state: how it begins
	part    string  // what is malformed
}

var errReply = errors.New("not a reply of the script")

const (
	decisionLen = 27 // of one rule
	leftLen     = 7  // of what remains of a rule, for each of several
	chargedLen  = 4  // of what a rule was charged of a debt
	neverBits   = 1<<56 - 1
)

// readInts reads so many integers, one after another.
func readInts(in string, count, size int) []int64 {
	if count == 0 {
		return nil
	}
	out := make([]int64, count)
	for i := range out {
		out[i] = readInt(in[size*i:][:size])
	}
	return out
}

// decodeReply reads a reply of the script to a request under these rules, of which so many owed a debt (0: none).
func decodeReply(in string, set *ruleSet, v verb, debts int) (reply, error) {
	if len(in) == 0 {
		return reply{}, errReply
	}
	out := reply{kind: replyKind(in[0])}
	switch out.kind {
	case replyUnsupported:
		if len(in) != 1 || set.supports(v) {
			return reply{}, errReply
		}
	case replyUnknown:
		if out.head = []byte(in[1:]); len(out.head) == 0 {
			return reply{}, errReply
		}
	case replyMalformed:
		out.part = in[1:]
	case replyRefused, replyAllowed:
		several := len(set.rules)
		if several == 1 {
			several = 0
		}
		if len(in) != decisionLen+leftLen*several+chargedLen*debts || int(in[1]) >= len(set.rules) {
			return reply{}, errReply
		}
		said := verdict{
			allowed: out.kind == replyAllowed, rule: int(in[1]), granted: readInt(in[2:6]),
			remaining: readInt(in[13:20]), resetAfter: readInt(in[20:27]),
		}
		if span := readInt(in[6:13]); said.allowed {
			said.wait = span
		} else if said.retry = span; span == neverBits {
			said.retry = never
		}
		out.verdict = said
		out.left = readInts(in[decisionLen:], several, leftLen)
		out.charged = readInts(in[decisionLen+leftLen*several:], debts, chargedLen)
	default:
		return reply{}, errReply
	}
	return out, nil
}

// callerHead gives the rules of a limit that a caller brings along in short: every state under them begins with that.
func callerHead(s *ruleSet) []byte {
	var out []byte
	alone := len(s.rules) == 1 && s.carry == carryUsage && s.rules[0].nameHash == hashOfName(callerRule)
	if !alone {
		out = append(out, 128+16*byte(s.carry)+byte(len(s.rules)))
	}
	for _, r := range s.rules {
		out = append(out, 16*r.flags+r.code, byte(len(r.numbers)))
		if !alone {
			out = append(out, r.nameHash[:]...)
		}
		for _, n := range r.numbers {
			if n == math.Trunc(n) && inRange(n, 0, unitsMax) {
				out = binary.AppendUvarint(out, uint64(n)+1)
				continue
			}
			out = append(out, 0)
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(n))
		}
	}
	return out
}

// callerRule is the name of a rule that has none, of a limit that a caller brings along.
const callerRule = "limit"

// parseCallerHead reads the rules with which the state of a caller's limit begins, and gives their blob.
func parseCallerHead(in []byte) (*ruleSet, []byte, error) {
	all, count, c, alone := in, 1, carryUsage, true
	if len(in) > 0 && in[0] >= 128 {
		c, count, alone = carry(in[0]>>4&7), int(in[0]&15), false
		in = in[1:]
	}
	if count < 1 || count > rulesMax || c > carryReset {
		return nil, nil, errBlob
	}
	var rules []rule
	for range count {
		if len(in) < 2 {
			return nil, nil, errBlob
		}
		code, flags, numbers, name := in[0]&15, in[0]>>4, make([]float64, in[1]), hashOfName(callerRule)
		in = in[2:]
		if !alone {
			if len(in) < 8 {
				return nil, nil, errBlob
			}
			name, in = [8]byte(in[:8]), in[8:]
		}
		for i := range numbers {
			n, size := binary.Uvarint(in)
			if size <= 0 {
				return nil, nil, errBlob
			}
			in = in[size:]
			if numbers[i] = float64(n) - 1; n > 0 {
				continue
			}
			if len(in) < 8 {
				return nil, nil, errBlob
			}
			numbers[i], in = math.Float64frombits(binary.LittleEndian.Uint64(in)), in[8:]
		}
		r, err := ruleOf(code, flags, name, numbers)
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, r)
	}
	set := newRuleSet(rules, c)
	return set, blobOf(set.bytes(), 0, all[:len(all)-len(in)]), nil
}
