package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	RulesMax = 8 // of a policy

	flagFullIsFresh byte = 1
	FlagPermits     byte = 2
	FlagCalendar    byte = 4

	blobFormat byte = 2
)

// Carry is what becomes of usage when rules change.
type Carry byte

const (
	CarryUsage Carry = iota
	CarryProportional
	CarryReset
)

// numbersOf is how many numbers a rule of each code has.
var numbersOf = [...]int{0, 9, 3, 5, 10, 5, 4, 4, 2, 3}

// Rule is one limit: its numbers as the script gets them, and the arithmetic that they make.
type Rule struct {
	primitive
	NameHash [8]byte
	Code     byte
	Flags    byte
	Numbers  []float64

	// The rules of other programs, which are found in Redis, have none of these.
	Name     string
	WindowUS int64     // that header fields report; 0: none
	Calendar *Calendar // of a rule that has one
}

// IsReported reports whether what Redis reports to be left of a rule is what a share has in use: not of permits that are held
// under their ids, nor of a rule that warms up, of which only the time between two requests is left.
func (r *Rule) IsReported() bool { return r.Flags&FlagPermits == 0 && r.Code != CodeSmoothWarmup }

// RuleSet is the rules of a policy or of an override, or a limit that a caller brings along.
type RuleSet struct {
	Rules    []Rule
	Carry    Carry
	handsOut bool
	hasQueue bool // requests can wait for a permit: each rule that hands out permits has a queue
}

// NewRuleSet makes a set of rules.
func NewRuleSet(rules []Rule, c Carry) *RuleSet {
	s := &RuleSet{Rules: rules, Carry: c}
	lacksQueue := false
	for _, r := range rules {
		s.handsOut = s.handsOut || r.Flags&FlagPermits != 0
		lacksQueue = lacksQueue || r.Code == CodeConcurrency && r.Numbers[2] == 0
	}
	s.hasQueue = s.handsOut && !lacksQueue
	return s
}

// HashOfName returns the hash by which rules are compared by name.
func HashOfName(name string) (hash [8]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(hash[:], sum[:])
	return hash
}

// sameNumbers compares the numbers of two rules, bit for bit.
func sameNumbers(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// CountsLike reports whether permits of each of the old rules, by its place, are as many permits of these: the names are
// the same in the same order, and so are the rules, or their usage stays as it is.
func (s *RuleSet) CountsLike(old *RuleSet) bool {
	sameNames := func(a, b Rule) bool { return a.NameHash == b.NameHash }
	return s == old || slices.EqualFunc(s.Rules, old.Rules, sameNames) && (s.Carry == CarryUsage || s.equals(old))
}

// equals reports whether the rules have the same bytes.
func (s *RuleSet) equals(old *RuleSet) bool {
	return s.Carry == old.Carry && slices.EqualFunc(s.Rules, old.Rules, func(a, b Rule) bool {
		return a.NameHash == b.NameHash && a.Code == b.Code && a.Flags == b.Flags && sameNumbers(a.Numbers, b.Numbers)
	})
}

// Bytes returns the rules as they are stored at `sg:rules:…`, from which their generation is made.
func (s *RuleSet) Bytes() []byte {
	out := []byte{blobFormat, byte(s.Carry), byte(len(s.Rules))}
	for _, r := range s.Rules {
		out = append(out, r.Code, byte(len(r.Numbers)), r.Flags)
		out = append(out, r.NameHash[:]...)
		for _, n := range r.Numbers {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(n))
		}
	}
	return out
}

// LaterError is the error of a record that this program must not decide by, because a part of it is of a later version: a version
// of the policy that is held is dropped.
type LaterError string

func (e LaterError) Error() string { return string(e) }

// NewLaterError returns a LaterError.
func NewLaterError(format string, args ...any) error { return LaterError(fmt.Sprintf(format, args...)) }

// ErrBlob is the error of bytes that are not rules.
var ErrBlob = errors.New("not the rules of format 2")

// ParseRules reads what bytes gave. Names are not in it: a rule is called by nothing but its hash.
func ParseRules(text []byte) (*RuleSet, error) {
	switch {
	case len(text) < 3:
		return nil, ErrBlob
	case text[0] != blobFormat:
		return nil, NewLaterError("rules of format %d; this program reads %d", text[0], blobFormat)
	case text[1] > byte(CarryReset):
		return nil, NewLaterError("rules with the unknown carry %d", text[1])
	case text[2] < 1 || text[2] > RulesMax:
		return nil, ErrBlob
	}
	rules, rest := make([]Rule, 0, text[2]), text[3:]
	for range int(text[2]) {
		if len(rest) < 11 || len(rest) < 11+8*int(rest[1]) {
			return nil, ErrBlob
		}
		numbers := make([]float64, rest[1])
		for i := range numbers {
			numbers[i] = math.Float64frombits(binary.LittleEndian.Uint64(rest[11+8*i:]))
		}
		r, err := RuleOf(rest[0], rest[2], [8]byte(rest[3:11]), numbers)
		if err != nil {
			return nil, err
		}
		rules, rest = append(rules, r), rest[11+8*len(numbers):]
	}
	if len(rest) > 0 {
		return nil, ErrBlob
	}
	return NewRuleSet(rules, Carry(text[1])), nil
}

// RuleOf makes a rule of its numbers, checked as the script checks them.
func RuleOf(code, flags byte, nameHash [8]byte, numbers []float64) (Rule, error) {
	r := Rule{NameHash: nameHash, Code: code, Flags: flags, Numbers: numbers}
	if code < 1 || int(code) >= len(numbersOf) {
		return r, NewLaterError("a rule of the unknown algorithm %d", code)
	}
	if len(numbers) != numbersOf[code] || flags > 7 {
		return r, ErrBlob
	}
	if calendar := code == CodeFixedWindow && numbers[1] == windowCalendar; calendar != (flags&FlagCalendar != 0) {
		return r, ErrBlob
	}
	for _, n := range numbers {
		if !(n >= 0 && n <= largest) {
			return r, ErrBlob
		}
	}
	r.primitive = primitiveOf(code, numbers)
	if r.primitive == nil {
		return r, fmt.Errorf("%w: numbers of algorithm %d out of range", ErrBlob, code)
	}
	return r, nil
}

// InRange reports whether a number is one of from to to.
func InRange(n float64, from, to int64) bool { return n >= float64(from) && n <= float64(to) }

// primitiveOf returns the arithmetic of the numbers; nil if they are out of range.
func primitiveOf(code byte, n []float64) primitive {
	if code != CodeSmoothBursty && code != CodeSmoothWarmup {
		for _, x := range n {
			if !InRange(x, 0, UnitsMax) {
				return nil
			}
		}
	}
	switch code {
	case CodeTokenBucket, CodeLeakyBucket, CodeSmoothBursty, CodeSmoothWarmup:
		if l := levelOf(code, n); l != nil {
			return l
		}
	case CodeConcurrency:
		if InRange(n[0], 1, 10_000) && n[1] >= 1 {
			return concurrency{int64(n[0]), int64(n[1])}
		}
	default:
		if w := windowOf(code, n); w != nil {
			return w
		}
	}
	return nil
}

// decisionNSMax is the longest that a decision may take in Redis, where every key waits for every other.
const decisionNSMax = 300_000

// ErrCostly is the error of rules that could block Redis for too long.
var ErrCostly = errors.New("one decision could take Redis longer than 300 us")

// TooCostly reports whether one decision by these rules could take Redis too long.
func (s *RuleSet) TooCostly() bool {
	ns := 10_000.0
	for _, r := range s.Rules {
		ns += 5_000
		switch r.Code {
		case CodeSlidingLog:
			ns += 114 * r.Numbers[0]
		case CodeConcurrency:
			ns += 285 * r.Numbers[0]
		case CodeSlidingWindow:
			ns += 285 * r.Numbers[3]
		}
	}
	return ns > decisionNSMax
}

// PlaceOf returns the place of the rule that is called as one of another rule set is; -1: there is none.
func (s *RuleSet) PlaceOf(other *RuleSet, i int) int {
	if s == other {
		return i
	}
	return slices.IndexFunc(s.Rules, func(r Rule) bool { return r.NameHash == other.Rules[i].NameHash })
}
