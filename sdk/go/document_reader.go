package sluicegate

import "strings"

// reader reads a document and collects what is wrong with it.
type reader struct{ problems problems }

func (r *reader) add(path, format string, args ...any) {
	if len(r.problems) < problemsMax {
		r.problems.add(path, format, args...)
	}
}

// fields gives the fields of an object by name; others than the known ones are problems.
func (r *reader) fields(path string, v value, known ...string) map[string]value {
	if v.kind != '{' {
		r.add(path, "expected an object")
		return nil
	}
	out := map[string]value{}
	for _, f := range v.fields {
		if !contains(known, f.name) {
			r.add(join(path, f.name), "unknown field, expected one of `%s`", strings.Join(known, "`, `"))
			continue
		}
		out[f.name] = f.value
	}
	return out
}

func contains(list []string, text string) bool {
	for _, other := range list {
		if other == text {
			return true
		}
	}
	return false
}

func join(path, name string) string {
	if name = short(name); path == "" {
		return name
	}
	return path + "." + name
}

func (r *reader) text(path string, v value) string {
	if v.kind != '"' {
		r.add(path, "expected a text")
	}
	return v.text
}

func (r *reader) sizedText(path string, v value, from, to int) string {
	text := r.text(path, v)
	if v.kind == '"' && (len(text) < from || len(text) > to) {
		r.add(path, "%d bytes, expected %d..=%d", len(text), from, to)
	}
	return text
}

func (r *reader) name(path string, v value) string {
	text := r.text(path, v)
	if v.kind == '"' && !isName(text) {
		r.add(path, "`%s` is not a name; expected 1..=%d bytes of `[a-z0-9._-]`", short(text), nameMax)
	}
	return text
}

// whole reads a whole number; -1, which is out of every range, if it is none.
func (r *reader) whole(path string, v value) int64 {
	n, rest, ok := digits(v.text)
	if v.kind != '0' || !ok || rest != "" {
		r.add(path, "expected a whole number")
		return -1
	}
	return n
}

func (r *reader) duration(path string, v value) int64 {
	text := r.text(path, v)
	us, ok := parseDuration(text)
	if v.kind == '"' && !ok {
		r.add(path, "`%s` is not a duration; expected `COUNTUNIT` of 1us to 366d, such as `10s`", short(text))
	}
	return us
}

func (r *reader) list(path string, v value, from, to int) []value {
	if v.kind != '[' {
		r.add(path, "expected a list")
		return nil
	}
	if len(v.list) < from || len(v.list) > to {
		r.add(path, "%d elements, expected %d..=%d", len(v.list), from, to)
		return nil
	}
	return v.list
}

// word reads one of several words, and gives its place.
func (r *reader) word(path string, v value, words ...string) int {
	text := r.text(path, v)
	for i, word := range words {
		if v.kind == '"' && text == word {
			return i
		}
	}
	if v.kind == '"' {
		r.add(path, "unknown value `%s`, expected one of `%s`", short(text), strings.Join(words, "`, `"))
	}
	return 0
}
