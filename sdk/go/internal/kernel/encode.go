package kernel

import (
	"cmp"
	"fmt"

	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
)

// Codes of the algorithms in a rule set.
const (
	CodeTokenBucket byte = iota + 1
	CodeSmoothBursty
	CodeSmoothWarmup
	CodeLeakyBucket
	CodeFixedWindow
	CodeSlidingWindow
	CodeSlidingCounter
	CodeSlidingLog
	CodeConcurrency
)

// AlgorithmNames are the names of algorithms in errors, and of rules alone in a policy, by their codes.
var AlgorithmNames = [...]string{
	"", "token_bucket", "smooth_bursty", "smooth_warmup", "leaky_bucket", "fixed_window", "sliding_window",
	"sliding_counter", "sliding_log", "concurrency",
}

const (
	permitsMax    int64 = 1 << 32
	periodMaxUS   int64 = 366 * 24 * 3600 * 1_000_000
	bucketsMax    int64 = 1000
	listMax       int64 = 10_000 // of entries and permits, which are kept one by one
	coldFactorMax       = 1000
)

// Spec is the parameters of a rule made in code.
type Spec struct {
	Name         string
	Code         byte
	Permits      int64
	PeriodUS     int64
	Burst        Optional
	Initial      Optional
	Interval     bool
	Delay        Optional
	NoDelay      bool
	BurstUS      Optional
	WarmupUS     int64
	Cold         float64
	Limit        int64
	WindowUS     int64
	First        bool
	Calendar     bool
	Unit         int
	Zone         string
	Buckets      int64
	UnknownField string // a parameter that the algorithm does not have
}

// Optional is a parameter that may be left out.
type Optional struct {
	Set   bool
	Value int64
}

func (o Optional) or(value int64) int64 {
	if o.Set {
		return o.Value
	}
	return value
}

// checkRange returns the error of a parameter that is out of range.
func checkRange(path string, value, from, to int64) error {
	if value < from || value > to {
		return fmt.Errorf("%s: `%d` is outside %d..=%d", path, value, from, to)
	}
	return nil
}

// check returns the first error of a rule's parameters.
func (r Spec) check(path string) error {
	path += "." + AlgorithmNames[r.Code]
	if r.UnknownField != "" {
		return fmt.Errorf("%s.%s: unknown field", path, r.UnknownField)
	}
	window := checkRange(path+".window", r.WindowUS, 1, periodMaxUS)
	switch r.Code {
	case CodeTokenBucket:
		return cmp.Or(r.checkRate(path), checkRange(path+".burst", r.Burst.or(r.Permits), 1, permitsMax),
			checkRange(path+".initial", r.Initial.or(0), 0, r.Burst.or(r.Permits)))
	case CodeLeakyBucket:
		return cmp.Or(r.checkRate(path), checkRange(path+".burst", r.Burst.or(0), 0, permitsMax),
			checkRange(path+".delay", r.Delay.or(0), 0, r.Burst.or(0)))
	case CodeSmoothBursty:
		return cmp.Or(r.checkRate(path), checkRange(path+".max_burst", r.BurstUS.or(1_000_000), 1, periodMaxUS))
	case CodeSmoothWarmup:
		err := cmp.Or(r.checkRate(path), checkRange(path+".warmup", r.WarmupUS, 1, periodMaxUS))
		if err == nil && !(r.Cold > 1 && r.Cold <= coldFactorMax) {
			err = fmt.Errorf("%s.cold_factor: `%v` is not above 1 and at most %d", path, r.Cold, coldFactorMax)
		}
		return err
	case CodeFixedWindow:
		if r.Calendar {
			window = r.checkCalendar(path)
		}
		return cmp.Or(checkRange(path+".limit", r.Limit, 1, permitsMax), window)
	case CodeSlidingWindow:
		return cmp.Or(checkRange(path+".limit", r.Limit, 1, permitsMax), checkRange(path+".buckets", r.Buckets, 1, bucketsMax),
			checkRange(path+".window", r.WindowUS, max(r.Buckets, 1), periodMaxUS))
	case CodeSlidingCounter:
		return cmp.Or(checkRange(path+".limit", r.Limit, 1, permitsMax-1), window)
	case CodeSlidingLog:
		return cmp.Or(checkRange(path+".limit", r.Limit, 1, listMax), window)
	default:
		return cmp.Or(checkRange(path+".limit", r.Limit, 1, listMax), checkRange(path+".ttl", r.WindowUS, 1, periodMaxUS))
	}
}

func (r Spec) checkRate(path string) error {
	return cmp.Or(checkRange(path+".rate", r.Permits, 1, permitsMax), checkRange(path+".rate", r.PeriodUS, 1, periodMaxUS))
}

func (r Spec) checkCalendar(path string) error {
	if r.Unit < UnitDay || r.Unit > UnitYear {
		return fmt.Errorf("%s.calendar: `%d` is not a unit", path, r.Unit)
	}
	if r.First {
		return fmt.Errorf("%s.align: does not go with `calendar`", path)
	}
	if _, err := LoadZone(r.Zone); err != nil {
		return fmt.Errorf("%s.time_zone: `%s` %w", path, lex.Short(r.Zone), err)
	}
	return nil
}

// compile makes the numbers of a rule that check found nothing wrong with.
func (r Spec) compile(name string) (Rule, error) {
	flags, numbers := flagFullIsFresh, []float64(nil)
	appendInts := func(values ...int64) {
		for _, v := range values {
			numbers = append(numbers, float64(v))
		}
	}
	switch r.Code {
	case CodeTokenBucket:
		burst := r.Burst.or(r.Permits)
		initial := r.Initial.or(burst)
		tick, perTick, perPermit := unitsOf(r.Permits, r.PeriodUS, burst)
		if r.Interval {
			tick, perTick, perPermit = r.PeriodUS, r.Permits, 1
		}
		if initial < burst {
			flags = 0
		}
		appendInts(tick, perTick, perPermit, burst*perPermit, burst, (burst-initial)*perPermit, boolInt(r.Interval), r.Permits, r.PeriodUS)
	case CodeLeakyBucket:
		depth := r.Burst.or(0) + 1
		tick, perTick, perPermit := unitsOf(r.Permits, r.PeriodUS, depth)
		appendInts(tick, perTick, perPermit, depth*perPermit, depth, boolInt(!r.NoDelay), 0, r.Delay.or(0)*perPermit, r.Permits, r.PeriodUS)
		if r.NoDelay {
			numbers[7] = 0
		}
	case CodeSmoothBursty:
		flags = 0
		stored := float64(float64(r.Permits)*float64(r.BurstUS.or(1_000_000))) / float64(r.PeriodUS)
		appendInts(r.Permits, r.PeriodUS)
		numbers = append(numbers, min(stored, float64(depthMax)))
	case CodeSmoothWarmup:
		numbers = r.warmupNumbers()
	case CodeFixedWindow:
		switch {
		case r.Calendar:
			flags += FlagCalendar
			appendInts(r.Limit, windowCalendar, 0, int64(r.Unit))
			numbers = append(numbers, zoneHash(r.Zone))
		case r.First:
			appendInts(r.Limit, windowFirst, r.WindowUS, 0, 0)
		default:
			appendInts(r.Limit, windowEpoch, r.WindowUS, 0, 0)
		}
	case CodeSlidingWindow:
		appendInts(r.Limit, r.WindowUS, CeilDiv(r.WindowUS, r.Buckets), r.Buckets)
	case CodeSlidingCounter:
		step := CeilDiv(r.WindowUS, (1<<51)/r.Limit)
		appendInts(r.Limit, r.WindowUS, step, r.WindowUS/step)
	case CodeSlidingLog:
		appendInts(r.Limit, r.WindowUS)
	case CodeConcurrency:
		flags += FlagPermits
		appendInts(r.Limit, r.WindowUS, 0)
	}
	rule, err := RuleOf(r.Code, flags, HashOfName(name), numbers)
	if err != nil {
		return rule, err
	}
	rule.Name, rule.WindowUS = name, rule.ReportedUS()
	if r.Calendar {
		zone, err := LoadZone(r.Zone)
		rule.Calendar = &Calendar{Unit: r.Unit, Zone: zone}
		return rule, err
	}
	return rule, nil
}

// ReportedUS returns the time that header fields report for a rule; 0 if they report none.
func (r Rule) ReportedUS() int64 {
	n := r.Numbers
	switch r.Code {
	case CodeTokenBucket, CodeLeakyBucket:
		return (&level{tickUS: int64(n[0]), perTick: int64(n[1])}).timeUntil(int64(n[3]), 0, 0)
	case CodeSmoothBursty:
		return capped(ceilF64(float64(float64(r.Limit())*n[1])/n[0]), SpanMaxUS)
	case CodeFixedWindow:
		return int64(n[2])
	case CodeSlidingCounter, CodeSlidingLog:
		return int64(n[1])
	default:
		return 0
	}
}

// warmupNumbers are Guava's, in doubles, each product rounded before it is added.
func (r Spec) warmupNumbers() []float64 {
	warmup := float64(r.WarmupUS)
	stable := float64(r.PeriodUS) / float64(r.Permits)
	cold := float64(stable * r.Cold)
	threshold := float64(0.5*warmup) / stable
	maxStored := threshold + float64(2.0*warmup)/(stable+cold)
	slope := (cold - stable) / (maxStored - threshold)
	return []float64{stable, threshold, maxStored, slope, warmup / maxStored}
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// unitsOf returns the units in which a bucket of a rate counts: a permit and what a tick brings are whole in it.
func unitsOf(permits, periodUS, depth int64) (tick, perTick, perPermit int64) {
	g := gcd(permits, periodUS)
	tick, perTick, perPermit = 1, permits/g, periodUS/g
	heaviest := depthMax / depth
	for _, f := range []int64{2, 3, 5, 7} {
		for perPermit > heaviest && perPermit%f == 0 {
			perPermit, tick = perPermit/f, tick*f
		}
	}
	if perPermit > heaviest {
		tick, perPermit = tick*perPermit, 1
	}
	return tick, perTick, perPermit
}

// CompileRules makes rules, each with its name or, of one alone, a default (empty: that of its algorithm). The error is the first
// one, with its path.
func CompileRules(list []Spec, unnamed string) (*RuleSet, error) {
	if len(list) < 1 || len(list) > RulesMax {
		return nil, fmt.Errorf("rules: `%d` rules, expected 1..=%d", len(list), RulesMax)
	}
	names, rules := map[string]bool{}, []Rule(nil)
	for i, r := range list {
		at, name := fmt.Sprintf("rules[%d]", i), r.Name
		if name == "" && len(list) == 1 {
			name = cmp.Or(unnamed, AlgorithmNames[r.Code])
		}
		switch {
		case r.Code == 0:
			return nil, fmt.Errorf("%s: no algorithm", at)
		case names[name]:
			return nil, fmt.Errorf("%s.name: `%s` is the name of another rule", at, name)
		}
		names[name] = true
		if err := cmp.Or(checkName(at+".name", name), r.check(at)); err != nil {
			return nil, err
		}
		rule, err := r.compile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		rules = append(rules, rule)
	}
	return NewRuleSet(rules, CarryUsage), nil
}

// Compile compiles the rules of a policy or limit that a program makes, and checks them and its name.
func Compile(name string, list []Spec, unnamed string) (*RuleSet, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	set, err := CompileRules(list, unnamed)
	if err == nil && set.TooCostly() {
		err = fmt.Errorf("rules: %w", ErrCostly)
	}
	return set, err
}

func checkName(path, text string) error {
	if lex.IsName(text) {
		return nil
	}
	return fmt.Errorf("%s: `%s` is not a name; expected 1..=%d bytes of `[a-z0-9._-]`", path, lex.Short(text), lex.NameMax)
}
