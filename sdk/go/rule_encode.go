package sluicegate

import (
	"cmp"
	"fmt"
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

// algorithmNames are the names of algorithms in errors, and of rules alone in a policy, by their codes.
var algorithmNames = [...]string{
	"", "token_bucket", "smooth_bursty", "smooth_warmup", "leaky_bucket", "fixed_window", "sliding_window",
	"sliding_counter", "sliding_log", "concurrency",
}

// checkRange gives the error of a parameter that is out of range.
func checkRange(path string, value, from, to int64) error {
	if value < from || value > to {
		return fmt.Errorf("%s: `%d` is outside %d..=%d", path, value, from, to)
	}
	return nil
}

// check gives the first error of a rule's parameters.
func (r Rule) check(path string) error {
	path += "." + algorithmNames[r.code]
	if r.odd != "" {
		return fmt.Errorf("%s.%s: unknown field", path, r.odd)
	}
	window := checkRange(path+".window", r.windowUS, 1, periodMaxUS)
	switch r.code {
	case codeTokenBucket:
		return cmp.Or(r.checkRate(path), checkRange(path+".burst", r.burst.or(r.permits), 1, permitsMax),
			checkRange(path+".initial", r.initial.or(0), 0, r.burst.or(r.permits)))
	case codeLeakyBucket:
		return cmp.Or(r.checkRate(path), checkRange(path+".burst", r.burst.or(0), 0, permitsMax),
			checkRange(path+".delay", r.delay.or(0), 0, r.burst.or(0)))
	case codeSmoothBursty:
		return cmp.Or(r.checkRate(path), checkRange(path+".max_burst", r.burstUS.or(1_000_000), 1, periodMaxUS))
	case codeSmoothWarmup:
		err := cmp.Or(r.checkRate(path), checkRange(path+".warmup", r.warmupUS, 1, periodMaxUS))
		if err == nil && !(r.cold > 1 && r.cold <= coldFactorMax) {
			err = fmt.Errorf("%s.cold_factor: `%v` is not above 1 and at most %d", path, r.cold, coldFactorMax)
		}
		return err
	case codeFixedWindow:
		if r.calendar {
			window = r.checkCalendar(path)
		}
		return cmp.Or(checkRange(path+".limit", r.limit, 1, permitsMax), window)
	case codeSlidingWindow:
		return cmp.Or(checkRange(path+".limit", r.limit, 1, permitsMax), checkRange(path+".buckets", r.buckets, 1, bucketsMax),
			checkRange(path+".window", r.windowUS, max(r.buckets, 1), periodMaxUS))
	case codeSlidingCounter:
		return cmp.Or(checkRange(path+".limit", r.limit, 1, permitsMax-1), window)
	case codeSlidingLog:
		return cmp.Or(checkRange(path+".limit", r.limit, 1, listMax), window)
	default:
		return cmp.Or(checkRange(path+".limit", r.limit, 1, listMax), checkRange(path+".ttl", r.windowUS, 1, periodMaxUS))
	}
}

func (r Rule) checkRate(path string) error {
	return cmp.Or(checkRange(path+".rate", r.permits, 1, permitsMax), checkRange(path+".rate", r.periodUS, 1, periodMaxUS))
}

func (r Rule) checkCalendar(path string) error {
	if r.unit < Day || r.unit > Year {
		return fmt.Errorf("%s.calendar: `%d` is not a unit", path, r.unit)
	}
	if r.first {
		return fmt.Errorf("%s.align: does not go with `calendar`", path)
	}
	if _, err := loadZone(r.zone); err != nil {
		return fmt.Errorf("%s.time_zone: `%s` %w", path, short(r.zone), err)
	}
	return nil
}

// compile makes the numbers of a rule that check found nothing wrong with.
func (r Rule) compile(name string) (rule, error) {
	flags, numbers := flagFullIsFresh, []float64(nil)
	put := func(values ...int64) {
		for _, v := range values {
			numbers = append(numbers, float64(v))
		}
	}
	switch r.code {
	case codeTokenBucket:
		burst := r.burst.or(r.permits)
		initial := r.initial.or(burst)
		tick, perTick, perPermit := unitsOf(r.permits, r.periodUS, burst)
		if r.interval {
			tick, perTick, perPermit = r.periodUS, r.permits, 1
		}
		if initial < burst {
			flags = 0
		}
		put(tick, perTick, perPermit, burst*perPermit, burst, (burst-initial)*perPermit, boolInt(r.interval), r.permits, r.periodUS)
	case codeLeakyBucket:
		depth := r.burst.or(0) + 1
		tick, perTick, perPermit := unitsOf(r.permits, r.periodUS, depth)
		put(tick, perTick, perPermit, depth*perPermit, depth, boolInt(!r.noDelay), 0, r.delay.or(0)*perPermit, r.permits, r.periodUS)
		if r.noDelay {
			numbers[7] = 0
		}
	case codeSmoothBursty:
		flags = 0
		stored := float64(float64(r.permits)*float64(r.burstUS.or(1_000_000))) / float64(r.periodUS)
		put(r.permits, r.periodUS)
		numbers = append(numbers, min(stored, float64(depthMax)))
	case codeSmoothWarmup:
		numbers = r.warmupNumbers()
	case codeFixedWindow:
		switch {
		case r.calendar:
			flags += flagCalendar
			put(r.limit, windowCalendar, 0, int64(r.unit))
			numbers = append(numbers, zoneHash(r.zone))
		case r.first:
			put(r.limit, windowFirst, r.windowUS, 0, 0)
		default:
			put(r.limit, windowEpoch, r.windowUS, 0, 0)
		}
	case codeSlidingWindow:
		put(r.limit, r.windowUS, ceilDiv(r.windowUS, r.buckets), r.buckets)
	case codeSlidingCounter:
		step := ceilDiv(r.windowUS, (1<<51)/r.limit)
		put(r.limit, r.windowUS, step, r.windowUS/step)
	case codeSlidingLog:
		put(r.limit, r.windowUS)
	case codeConcurrency:
		flags += flagPermits
		put(r.limit, r.windowUS, 0)
	}
	made, err := ruleOf(r.code, flags, hashOfName(name), numbers)
	if err != nil {
		return made, err
	}
	made.name, made.windowUS = name, made.reportedUS()
	if r.calendar {
		zone, err := loadZone(r.zone)
		made.calendar = &calendar{unit: r.unit, zone: zone}
		return made, err
	}
	return made, nil
}

// reportedUS gives the time that header fields report for a rule; 0 if they report none.
func (r rule) reportedUS() int64 {
	n := r.numbers
	switch r.code {
	case codeTokenBucket, codeLeakyBucket:
		return (&level{tickUS: int64(n[0]), perTick: int64(n[1])}).timeUntil(int64(n[3]), 0, 0)
	case codeSmoothBursty:
		return capped(ceilF64(float64(float64(r.limit())*n[1])/n[0]), spanMaxUS)
	case codeFixedWindow:
		return int64(n[2])
	case codeSlidingCounter, codeSlidingLog:
		return int64(n[1])
	default:
		return 0
	}
}

// warmupNumbers are Guava's, in doubles, each product rounded before it is added.
func (r Rule) warmupNumbers() []float64 {
	warmup := float64(r.warmupUS)
	stable := float64(r.periodUS) / float64(r.permits)
	cold := float64(stable * r.cold)
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

// unitsOf gives the units in which a bucket of a rate counts: a permit and what a tick brings are whole in it.
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

// compileRules makes rules, each with its name or, of one alone, a default (empty: that of its algorithm). The error is the first
// one, with its path.
func compileRules(list []Rule, unnamed string) (*ruleSet, error) {
	if len(list) < 1 || len(list) > rulesMax {
		return nil, fmt.Errorf("rules: `%d` rules, expected 1..=%d", len(list), rulesMax)
	}
	names, rules := map[string]bool{}, []rule(nil)
	for i, r := range list {
		at, name := fmt.Sprintf("rules[%d]", i), r.name
		if name == "" && len(list) == 1 {
			name = cmp.Or(unnamed, algorithmNames[r.code])
		}
		switch {
		case r.code == 0:
			return nil, fmt.Errorf("%s: no algorithm", at)
		case names[name]:
			return nil, fmt.Errorf("%s.name: `%s` is the name of another rule", at, name)
		}
		names[name] = true
		if err := cmp.Or(checkName(at+".name", name), r.check(at)); err != nil {
			return nil, err
		}
		made, err := r.compile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		rules = append(rules, made)
	}
	return newRuleSet(rules, carryUsage), nil
}

// madeInCode compiles the rules of a policy or limit that a program makes, and checks them and its name.
func madeInCode(name string, list []Rule, unnamed string) (*ruleSet, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	set, err := compileRules(list, unnamed)
	if err == nil && set.tooCostly() {
		err = fmt.Errorf("rules: %w", errCostly)
	}
	return set, err
}

func checkName(path, text string) error {
	if isName(text) {
		return nil
	}
	return fmt.Errorf("%s: `%s` is not a name; expected 1..=%d bytes of `[a-z0-9._-]`", path, short(text), nameMax)
}

func isName(text string) bool {
	if len(text) < 1 || len(text) > nameMax {
		return false
	}
	for i := range len(text) {
		b := text[i]
		if !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-') {
			return false
		}
	}
	return true
}

// short cuts a text that stands in a message.
func short(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return text
}
