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

// numbersOf is how many numbers a rule of each code has.
var numbersOf = [...]int{0, 9, 3, 5, 10, 5, 4, 4, 2, 3}

// rule is one limit: its numbers as the script gets them, and the arithmetic that they make.
type rule struct {
	primitive
	nameHash [8]byte
	code     byte
	flags    byte
	numbers  []float64

	// The rules of other programs, which are found in Redis, have none of these.
	name     string
	windowUS int64     // that header fields report; 0: none
	calendar *calendar // of a rule that has one
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
	switch {
	case len(text) < 3:
		return nil, errBlob
	case text[0] != blobFormat:
		return nil, ofLater("rules of format %d; this program reads %d", text[0], blobFormat)
	case text[1] > byte(carryReset):
		return nil, ofLater("rules with the unknown carry %d", text[1])
	case text[2] < 1 || text[2] > rulesMax:
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
	if code < 1 || int(code) >= len(numbersOf) {
		return r, ofLater("a rule of the unknown algorithm %d", code)
	}
	if len(numbers) != numbersOf[code] || flags > 7 {
		return r, errBlob
	}
	if calendar := code == codeFixedWindow && numbers[1] == windowCalendar; calendar != (flags&flagCalendar != 0) {
		return r, errBlob
	}
	for _, n := range numbers {
		if !(n >= 0 && n <= largest) {
			return r, errBlob
		}
	}
	r.primitive = primitiveOf(code, numbers)
	if r.primitive == nil {
		return r, fmt.Errorf("%w: numbers of algorithm %d out of range", errBlob, code)
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

const (
	// lifeMaxMS bounds how long rules are kept in Redis: longer than any window of a year.
	lifeMaxMS = 400 * 24 * 3600 * 1000
	// rulesGraceMS is how long rules are kept after the last state of them is of use.
	rulesGraceMS = 20 * 60 * 1000
	dayMS        = 24 * 3600 * 1000
)

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
