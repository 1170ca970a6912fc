package sluicegate

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	rulesMax = 8 // of a policy

	flagFullIsFresh byte = 1
	flagPermits     byte = 2
	flagCalendar    byte = 4

	blobFormat byte = 2
)

// carry is what becomes of usage when rules change.
type carry byte

const (
	carryUsage carry = iota
	carryProportional
	carryReset
)

// Codes of the algorithms in a rule set.
const (
	codeTokenBucket byte = iota + 1
	codeSmoothBursty
	codeSmoothWarmup
	codeLeakyBucket
	codeFixedWindow
	codeSlidingWindow
	codeSlidingCounter
	codeSlidingLog
	codeConcurrency
)

// algorithmNames are the names of algorithms in a document, by their codes.
var algorithmNames = [...]string{
	"", "token_bucket", "smooth_bursty", "smooth_warmup", "leaky_bucket", "fixed_window", "sliding_window",
	"sliding_counter", "sliding_log", "concurrency",
}

// numbersOf is how many numbers a rule of each code has.
var numbersOf = [...]int{0, 9, 3, 5, 10, 5, 4, 4, 2, 3}

// rule is one limit: its numbers as the script gets them, and the arithmetic that they make.
type rule struct {
	primitive
	name     string
	nameHash [8]byte
	code     byte
	flags    byte
	numbers  []float64
}

// isReported says whether what Redis says to be left of a rule says what a share has in use: not of permits that are held
// under their ids, nor of a rule that warms up, of which only the time between two requests is left.
func (r *rule) isReported() bool { return r.flags&flagPermits == 0 && r.code != codeSmoothWarmup }

// ruleSet is the rules of a policy or of an override, or a limit that a caller brings along.
type ruleSet struct {
	rules    []rule
	carry    carry
	handsOut bool
}

func newRuleSet(rules []rule, c carry) *ruleSet {
	s := &ruleSet{rules: rules, carry: c}
	for _, r := range rules {
		s.handsOut = s.handsOut || r.flags&flagPermits != 0
	}
	return s
}

func hashOfName(name string) (hash [8]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(hash[:], sum[:])
	return hash
}

// sameNumbers compares the numbers of two rules, bit for bit.
func sameNumbers(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}

// bytes gives the rules as they are stored at `sg:rules:…`, from which their generation is made.
func (s *ruleSet) bytes() []byte {
	out := []byte{blobFormat, byte(s.carry), byte(len(s.rules))}
	for _, r := range s.rules {
		out = append(out, r.code, byte(len(r.numbers)), r.flags)
		out = append(out, r.nameHash[:]...)
		for _, n := range r.numbers {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(n))
		}
	}
	return out
}

// blobOf surrounds rules with the length of their states' head, and the head. The first own bytes of the head tell the
// rules from others; 0: all of it.
func blobOf(rules []byte, own byte, head []byte) []byte {
	out := append([]byte{own, byte(len(head)), byte(len(head) >> 8)}, rules...)
	return append(out, head...)
}

const (
	generationLen = 6
	policyHeadLen = 11
)

// generationOf gives what tells the rules of a policy from others.
func generationOf(rules []byte) []byte {
	sum := sha256.Sum256(rules)
	return sum[:generationLen]
}

const (
	instantLen = 5 // bytes in a head
	// instantMaxMS is the latest instant of a head, in 2060.
	instantMaxMS = 1<<(8*instantLen) - 1
)

// policyHead is the head of states under a policy's rules that were taken over at an instant, in ms since 2026.
func policyHead(rules []byte, instantMS int64) []byte {
	head := append([]byte(nil), generationOf(rules)...)
	return appendInt(head, max(instantMS, 0), instantLen)
}

// instantOf gives the instant in ms since 2026 began; 0 before that.
func instantOf(t time.Time) int64 { return max(t.UnixMilli()-year2026US/1000, 0) }

var errBlob = errors.New("not the rules of format 2")

// parseRules reads what bytes gave. Names are not in it: a rule is called by nothing but its hash.
func parseRules(text []byte) (*ruleSet, error) {
	if len(text) < 3 || text[0] != blobFormat || text[1] > byte(carryReset) || text[2] < 1 || text[2] > rulesMax {
		return nil, errBlob
	}
	rules, rest := make([]rule, 0, text[2]), text[3:]
	for range int(text[2]) {
		if len(rest) < 11 || len(rest) < 11+8*int(rest[1]) {
			return nil, errBlob
		}
		numbers := make([]float64, rest[1])
		for i := range numbers {
			numbers[i] = math.Float64frombits(binary.LittleEndian.Uint64(rest[11+8*i:]))
		}
		r, err := ruleOf(rest[0], rest[2], [8]byte(rest[3:11]), numbers)
		if err != nil {
			return nil, err
		}
		rules, rest = append(rules, r), rest[11+8*len(numbers):]
	}
	if len(rest) > 0 {
		return nil, errBlob
	}
	return newRuleSet(rules, carry(text[1])), nil
}

// ruleOf makes a rule of its numbers, checked as the script checks them.
func ruleOf(code, flags byte, nameHash [8]byte, numbers []float64) (rule, error) {
	r := rule{nameHash: nameHash, code: code, flags: flags, numbers: numbers}
	if code < 1 || int(code) >= len(numbersOf) || len(numbers) != numbersOf[code] || flags > 7 {
		return r, errBlob
	}
	for _, n := range numbers {
		if !(n >= 0 && n <= largest) {
			return r, errBlob
		}
	}
	r.primitive = primitiveOf(code, numbers)
	if r.primitive == nil {
		return r, fmt.Errorf("%w: numbers of %s out of range", errBlob, algorithmNames[code])
	}
	return r, nil
}

func inRange(n float64, from, to int64) bool { return n >= float64(from) && n <= float64(to) }

// primitiveOf gives the arithmetic of the numbers; nil if they are out of range.
func primitiveOf(code byte, n []float64) primitive {
	if code != codeSmoothBursty && code != codeSmoothWarmup {
		for _, x := range n {
			if !inRange(x, 0, unitsMax) {
				return nil
			}
		}
	}
	switch code {
	case codeTokenBucket, codeLeakyBucket, codeSmoothBursty, codeSmoothWarmup:
		if l := levelOf(code, n); l != nil {
			return l
		}
	case codeConcurrency:
		if inRange(n[0], 1, 10_000) && n[1] >= 1 {
			return concurrency{int64(n[0]), int64(n[1])}
		}
	default:
		if w := windowOf(code, n); w != nil {
			return w
		}
	}
	return nil
}

// lifeUS gives the time from an empty to a full budget, in µs.
func (r rule) lifeUS() int64 {
	n := r.numbers
	switch r.code {
	case codeTokenBucket, codeLeakyBucket:
		return r.drainUS()
	case codeSmoothBursty:
		return capped(ceilF64(float64(n[2]*n[1])/n[0]), spanMaxUS)
	case codeSmoothWarmup:
		return capped(ceilF64(float64(n[2]*n[4])), spanMaxUS)
	case codeFixedWindow:
		if n[1] == windowCalendar {
			return int64(366*24*time.Hour) / 1000
		}
		return int64(n[2])
	case codeSlidingWindow:
		return int64(n[1]) + int64(n[2])
	case codeSlidingCounter:
		return 2 * int64(n[1])
	default:
		return int64(n[1])
	}
}

// drainUS gives the time in which a full bucket flows out, in whole ticks.
func (r rule) drainUS() int64 {
	n := r.numbers
	l := level{tickUS: int64(n[0]), perTick: int64(n[1])}
	return l.timeUntil(int64(n[3]), 0, 0)
}

// windowUS gives the time that header fields report for a rule; 0 if they report none.
func (r rule) windowUS() int64 {
	switch r.code {
	case codeTokenBucket, codeLeakyBucket:
		return r.drainUS()
	case codeSmoothBursty:
		return capped(ceilF64(float64(float64(r.limit())*r.numbers[1])/r.numbers[0]), spanMaxUS)
	case codeFixedWindow:
		return int64(r.numbers[2])
	case codeSlidingCounter, codeSlidingLog:
		return int64(r.numbers[1])
	default:
		return 0
	}
}

const (
	// idleMS is how long a budget that does not start full is remembered after it is full.
	idleMS = 30 * 24 * 3600 * 1000
	// lifeMaxMS bounds how long rules are kept in Redis: longer than any window of a year.
	lifeMaxMS = 400 * 24 * 3600 * 1000
	// rulesGraceMS is how long rules are kept after the last state of them is of use.
	rulesGraceMS = 20 * 60 * 1000
	dayMS        = 24 * 3600 * 1000
)

// lifeMS gives how long a state under these rules is of use at most.
func (s *ruleSet) lifeMS() int64 {
	life, fresh := int64(0), true
	for _, r := range s.rules {
		life = max(life, r.lifeUS()/1000+1)
		fresh = fresh && r.flags&flagFullIsFresh != 0
	}
	if !fresh {
		life += idleMS
	}
	return min(life, lifeMaxMS)
}

// decisionNSMax is the longest that a decision may take in Redis, where every key waits for every other.
const decisionNSMax = 300_000

var errCostly = errors.New("one decision could take Redis longer than 300 us")

// tooCostly says whether one decision by these rules could take Redis too long.
func (s *ruleSet) tooCostly() bool {
	ns := 10_000.0
	for _, r := range s.rules {
		ns += 5_000
		switch r.code {
		case codeSlidingLog:
			ns += 114 * r.numbers[0]
		case codeConcurrency:
			ns += 285 * r.numbers[0]
		case codeSlidingWindow:
			ns += 285 * r.numbers[3]
		}
	}
	return ns > decisionNSMax
}
