package sluicegate

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// value is a JSON value that keeps how its numbers are written: a document tells 5 from 5.0, which encoding/json does
// not, and refuses half of a surrogate pair, which encoding/json replaces.
type value struct {
	kind   byte // '{' '[' '"' '0' 't' 'f' 'n'
	text   string
	list   []value
	fields []field
}

type field struct {
	name  string
	value value
}

const (
	documentMax  = 8 << 20 // bytes, as for a server
	depthJSONMax = 16
)

type jsonReader struct {
	in  string
	pos int
}

var errJSON = errors.New("not a JSON value of RFC 8259")

func parseJSON(in string) (value, error) {
	if len(in) > documentMax {
		return value{}, fmt.Errorf("%d bytes, expected at most %d", len(in), documentMax)
	}
	r := &jsonReader{in: in}
	v, err := r.value(0)
	if r.space(); err == nil && r.pos != len(in) {
		err = errJSON
	}
	if err != nil {
		return value{}, fmt.Errorf("%w (at byte %d)", err, r.pos)
	}
	return v, nil
}

func (r *jsonReader) space() {
	for r.pos < len(r.in) && (r.in[r.pos] == ' ' || r.in[r.pos] == '\n' || r.in[r.pos] == '\t' || r.in[r.pos] == '\r') {
		r.pos++
	}
}

// next gives the next byte that is no space; 0 at the end.
func (r *jsonReader) next() byte {
	if r.space(); r.pos < len(r.in) {
		return r.in[r.pos]
	}
	return 0
}

func (r *jsonReader) word(word string) error {
	if len(r.in)-r.pos < len(word) || r.in[r.pos:r.pos+len(word)] != word {
		return errJSON
	}
	r.pos += len(word)
	return nil
}

func (r *jsonReader) value(depth int) (v value, err error) {
	if depth > depthJSONMax {
		return v, fmt.Errorf("more than %d objects and lists inside each other", depthJSONMax)
	}
	c := r.next()
	v.kind = c
	switch {
	case c == '{':
		err = r.items('}', func() error {
			if r.next() != '"' {
				return errJSON
			}
			name, err := r.text()
			if err != nil {
				return err
			}
			if r.next() != ':' {
				return errJSON
			}
			r.pos++
			inner, err := r.value(depth + 1)
			for _, f := range v.fields {
				if f.name == name {
					return fmt.Errorf("field `%s` is given twice", short(name))
				}
			}
			v.fields = append(v.fields, field{name, inner})
			return err
		})
	case c == '[':
		err = r.items(']', func() error {
			inner, err := r.value(depth + 1)
			v.list = append(v.list, inner)
			return err
		})
	case c == '"':
		v.text, err = r.text()
	case c == 't':
		err = r.word("true")
	case c == 'f':
		err = r.word("false")
	case c == 'n':
		err = r.word("null")
	default:
		v.kind = '0'
		v.text, err = r.number()
	}
	return v, err
}

// items reads what is between brackets, each by one.
func (r *jsonReader) items(end byte, one func() error) error {
	r.pos++
	if r.next() == end {
		r.pos++
		return nil
	}
	for {
		if err := one(); err != nil {
			return err
		}
		switch r.next() {
		case ',':
			r.pos++
		case end:
			r.pos++
			return nil
		default:
			return errJSON
		}
	}
}

// number reads a number and gives its text.
func (r *jsonReader) number() (string, error) {
	from := r.pos
	digits := func() bool {
		start := r.pos
		for r.pos < len(r.in) && r.in[r.pos] >= '0' && r.in[r.pos] <= '9' {
			r.pos++
		}
		return r.pos > start
	}
	at := func(set string) bool {
		for i := range len(set) {
			if r.pos < len(r.in) && r.in[r.pos] == set[i] {
				r.pos++
				return true
			}
		}
		return false
	}
	at("-")
	whole := r.pos
	if !digits() || r.pos > whole+1 && r.in[whole] == '0' {
		return "", errJSON
	}
	if at(".") && !digits() {
		return "", errJSON
	}
	if at("eE") {
		at("+-")
		if !digits() {
			return "", errJSON
		}
	}
	return r.in[from:r.pos], nil
}

// text reads a text behind its first quotation mark.
func (r *jsonReader) text() (string, error) {
	r.pos++
	var out []byte
	for r.pos < len(r.in) {
		switch c := r.in[r.pos]; {
		case c == '"':
			r.pos++
			return string(out), nil
		case c == '\\':
			rune, err := r.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, rune)
		case c < 0x20:
			return "", errJSON
		default:
			rune, size := utf8.DecodeRuneInString(r.in[r.pos:])
			if rune == utf8.RuneError && size == 1 {
				return "", errors.New("not UTF-8")
			}
			out = append(out, r.in[r.pos:r.pos+size]...)
			r.pos += size
		}
	}
	return "", errJSON
}

func (r *jsonReader) escape() (rune, error) {
	if r.pos+1 >= len(r.in) {
		return 0, errJSON
	}
	c := r.in[r.pos+1]
	if c != 'u' {
		r.pos += 2
		for i, escaped := range []byte(`"\/bfnrt`) {
			if c == escaped {
				return rune("\"\\/\b\f\n\r\t"[i]), nil
			}
		}
		return 0, errJSON
	}
	first, err := r.unit()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	second, err := r.unit()
	both := utf16.DecodeRune(first, second)
	if err != nil || both == utf8.RuneError {
		return 0, errors.New("half of a surrogate pair")
	}
	return both, nil
}

// unit reads `\uXXXX`.
func (r *jsonReader) unit() (rune, error) {
	if r.pos+6 > len(r.in) || r.in[r.pos] != '\\' || r.in[r.pos+1] != 'u' {
		return 0, errJSON
	}
	n, err := strconv.ParseUint(r.in[r.pos+2:r.pos+6], 16, 16)
	if err != nil {
		return 0, errJSON
	}
	r.pos += 6
	return rune(n), nil
}
