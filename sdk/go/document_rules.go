package sluicegate

import (
	"fmt"
	"strconv"
	"strings"
)

// rules reads a list of rules and compiles it.
func (r *reader) rules(path string, v value, c carry) ([]Rule, *ruleSet) {
	before, list := len(r.problems), []Rule(nil)
	for i, element := range r.list(path, v, 1, rulesMax) {
		list = append(list, r.rule(fmt.Sprintf("%s[%d]", path, i), element))
	}
	if len(r.problems) > before {
		return nil, nil
	}
	return list, compileRules(path, list, "", c, &r.problems)
}

// parametersOf are the parameters of each algorithm; those before the bar are required.
var parametersOf = [...]string{
	"", "rate|burst initial refill", "rate|max_burst", "rate warmup|cold_factor", "rate|burst delay",
	"limit|window align calendar time_zone", "limit window|buckets", "limit window|", "limit window|", "limit ttl|queue",
}

func (r *reader) rule(path string, v value) Rule {
	out := Rule{cold: 3, buckets: 10}
	known := append([]string{"name"}, algorithmNames[1:]...)
	for _, f := range v.fields {
		if !contains(known, f.name) {
			r.add(path, "unknown algorithm `%s`, expected one of `%s`", short(f.name), strings.Join(algorithmNames[1:], "`, `"))
			return out
		}
	}
	fields := r.fields(path, v, known...)
	if name, ok := fields["name"]; ok {
		out.name = r.name(path+".name", name)
	}
	algorithms := 0
	for code, name := range algorithmNames {
		if parameters, ok := fields[name]; ok && code > 0 {
			algorithms++
			out.code = byte(code)
			r.parameters(path+"."+name, parameters, &out)
		}
	}
	if algorithms != 1 {
		r.add(path, "%d algorithms, expected 1", algorithms)
	}
	return out
}

func (r *reader) parameters(path string, v value, out *Rule) {
	required, others, _ := strings.Cut(parametersOf[out.code], "|")
	known := append(strings.Fields(required), strings.Fields(others)...)
	fields := r.fields(path, v, known...)
	for _, name := range strings.Fields(required) {
		if _, ok := fields[name]; !ok {
			r.add(path+"."+name, "missing field")
		}
	}
	for _, name := range known {
		if v, ok := fields[name]; ok {
			r.parameter(path+"."+name, name, v, out)
		}
	}
	if out.code != codeFixedWindow {
		return
	}
	_, hasWindow := fields["window"]
	_, hasZone := fields["time_zone"]
	_, hasAlign := fields["align"]
	switch {
	case out.calendar && hasWindow:
		r.add(path+".window", "does not go with `calendar`")
	case out.calendar && hasAlign:
		r.add(path+".align", "does not go with `calendar`")
	case !out.calendar && !hasWindow:
		r.add(path+".window", "missing field")
	case !out.calendar && hasZone:
		r.add(path+".time_zone", "goes with `calendar` only")
	}
	if out.calendar && !hasZone {
		out.zone = "UTC"
	}
}

func (r *reader) parameter(path, name string, v value, out *Rule) {
	switch name {
	case "rate":
		text := r.text(path, v)
		var ok bool
		if out.permits, out.periodUS, ok = parseRate(text); v.kind == '"' && !ok {
			r.add(path, "`%s` is not a rate; expected permits per time, such as `10/s`", short(text))
		}
	case "burst":
		out.burst = optional{true, r.whole(path, v)}
	case "initial":
		out.initial = optional{true, r.whole(path, v)}
	case "refill":
		out.interval = r.word(path, v, "smooth", "interval") == 1
	case "delay":
		if v.kind == '"' {
			out.noDelay = r.word(path, v, "all", "none") == 1
		} else {
			out.delay = optional{true, r.whole(path, v)}
		}
	case "max_burst":
		out.burstUS = optional{true, r.duration(path, v)}
	case "warmup":
		out.warmupUS = r.duration(path, v)
	case "cold_factor":
		factor, err := strconv.ParseFloat(v.text, 64)
		if v.kind != '0' || err != nil || strings.Contains(v.text, "+") {
			r.add(path, "expected a number")
		}
		out.cold = factor
	case "limit":
		out.limit = r.whole(path, v)
	case "window", "ttl":
		out.windowUS = r.duration(path, v)
	case "align":
		out.first = r.word(path, v, "epoch", "first") == 1
	case "calendar":
		out.calendar, out.unit = true, Unit(r.word(path, v, unitNames[:]...))
	case "time_zone":
		out.zone = r.text(path, v)
	case "buckets":
		out.buckets = r.whole(path, v)
	case "queue":
		out.queue = r.whole(path, v)
	}
}
