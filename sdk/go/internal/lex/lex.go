// Package lex reads and truncates short texts: numbers, names, and what a message repeats.
package lex

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Digits reads a whole number without a leading zero from the beginning of a text; math.MaxInt64 if it is larger.
func Digits(text string) (n int64, rest string, ok bool) {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end == 0 || end > 1 && text[0] == '0' {
		return 0, text, false
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, text[end:], true
}

// NameMax is the longest name of a policy, an app or a rule, in bytes.
const NameMax = 128

// IsName reports whether a text is a name.
func IsName(text string) bool {
	return len(text) >= 1 && len(text) <= NameMax && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// Short cuts a text that stands in a message.
func Short(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return text
}

// TruncateMax is how many bytes of a text that comes from outside an error repeats: a server's problem, an error of Redis.
const TruncateMax = 1024

// Truncate returns a text from outside as errors have it.
func Truncate(text string) string {
	if len(text) <= TruncateMax {
		return text
	}
	end := TruncateMax
	for end > TruncateMax-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
