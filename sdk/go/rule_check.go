package sluicegate

import (
	"fmt"
	"math"
	"math/bits"
)

// problems collects what is wrong with a document, each with its path.
type problems []string

func (p *problems) add(path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	*p = append(*p, path+fmt.Sprintf(format, args...))
}

func (p *problems) inRange(path string, value, from, to int64) {
	if value < from || value > to {
		p.add(path, "`%d` is outside %d..=%d", value, from, to)
	}
}

// check adds what is wrong with a rule's parameters.
func (r Rule) check(path string, p *problems) {
	path += "." + algorithmNames[r.code]
	if r.odd != "" {
		p.add(path+"."+r.odd, "unknown field")
	}
	switch r.code {
	case codeTokenBucket, codeLeakyBucket, codeSmoothBursty, codeSmoothWarmup:
		p.inRange(path+".rate", r.permits, 1, permitsMax)
		p.inRange(path+".rate", r.periodUS, 1, periodMaxUS)
	case codeSlidingLog, codeConcurrency:
		p.inRange(path+".limit", r.limit, 1, listMax)
	case codeSlidingCounter:
		p.inRange(path+".limit", r.limit, 1, permitsMax-1)
	default:
		p.inRange(path+".limit", r.limit, 1, permitsMax)
	}
	switch r.code {
	case codeTokenBucket:
		p.inRange(path+".burst", r.burst.or(r.permits), 1, permitsMax)
		p.inRange(path+".initial", r.initial.or(0), 0, r.burst.or(r.permits))
	case codeLeakyBucket:
		p.inRange(path+".burst", r.burst.or(0), 0, permitsMax)
		p.inRange(path+".delay", r.delay.or(0), 0, r.burst.or(0))
	case codeSmoothBursty:
		p.inRange(path+".max_burst", r.burstUS.or(1_000_000), 1, periodMaxUS)
	case codeSmoothWarmup:
		p.inRange(path+".warmup", r.warmupUS, 1, periodMaxUS)
		if !(r.cold > 1 && r.cold <= coldFactorMax) {
			p.add(path+".cold_factor", "`%v` is not above 1 and at most %d", r.cold, coldFactorMax)
		}
	case codeFixedWindow:
		if !r.calendar {
			p.inRange(path+".window", r.windowUS, 1, periodMaxUS)
			break
		}
		if r.unit < Day || r.unit > Year {
			p.add(path+".calendar", "`%d` is not a unit", r.unit)
		}
		if r.first {
			p.add(path+".align", "does not go with `calendar`")
		}
		if _, err := loadZone(r.zone); err != nil {
			p.add(path+".time_zone", "`%s` %v", short(r.zone), err)
		}
	case codeSlidingWindow:
		p.inRange(path+".buckets", r.buckets, 1, bucketsMax)
		p.inRange(path+".window", r.windowUS, max(r.buckets, 1), periodMaxUS)
	case codeConcurrency:
		p.inRange(path+".ttl", r.windowUS, 1, periodMaxUS)
		if r.queue != 0 {
			p.add(path+".queue", "`%d` is not supported yet, expected 0", r.queue)
		}
	default:
		p.inRange(path+".window", r.windowUS, 1, periodMaxUS)
	}
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
		put(r.limit, r.windowUS, r.queue)
	}
	made, err := ruleOf(r.code, flags, hashOfName(name), numbers)
	made.name = name
	return made, err
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

// compileRules makes rules, each with its name or, of one alone, a default; problems are added with their paths.
func compileRules(path string, list []Rule, unnamed string, c carry, p *problems) *ruleSet {
	if len(list) < 1 || len(list) > rulesMax {
		p.add(path, "`%d` rules, expected 1..=%d", len(list), rulesMax)
		return nil
	}
	before, names, rules := len(*p), map[string]bool{}, []rule(nil)
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		name := r.name
		if name == "" && len(list) == 1 {
			if name = unnamed; name == "" {
				name = algorithmNames[r.code]
			}
		}
		if r.code == 0 {
			p.add(at, "no algorithm")
			continue
		}
		if !isName(name) {
			p.add(at+".name", "`%s` is not a name; expected 1..=%d bytes of `[a-z0-9._-]`", short(name), nameMax)
		} else if names[name] {
			p.add(at+".name", "`%s` is the name of another rule", name)
		}
		names[name] = true
		if r.check(at, p); len(*p) > before {
			continue
		}
		made, err := r.compile(name)
		if err != nil {
			p.add(at, "%v", err)
			continue
		}
		rules = append(rules, made)
	}
	if len(*p) > before {
		return nil
	}
	return newRuleSet(rules, c)
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

// product gives a * b; saturated if it does not fit.
func product(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low <= math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}
