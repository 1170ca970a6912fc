package sluicegate

import (
	"math"
	"strconv"
	"strings"
)

// digits reads a whole number without a leading zero from the beginning of a text; math.MaxInt64 if it is larger.
func digits(text string) (n int64, rest string, ok bool) {
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

var bytesOf = map[string]int64{
	"": 1, "B": 1, "kB": 1000, "KiB": 1 << 10, "MB": 1_000_000, "MiB": 1 << 20, "GB": 1_000_000_000, "GiB": 1 << 30,
}

var microsOf = map[string]int64{
	"us": 1, "ms": 1000, "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000,
	"m": 60_000_000, "min": 60_000_000, "minute": 60_000_000,
	"h": 3_600_000_000, "hour": 3_600_000_000, "d": 86_400_000_000, "day": 86_400_000_000,
}

// parseRate reads a rate such as `100/s` or `64KiB/200ms`.
func parseRate(text string) (permits, periodUS int64, ok bool) {
	before, after, found := strings.Cut(text, "/")
	if !found {
		return 0, 0, false
	}
	count, unit, ok := digits(before)
	weight, known := bytesOf[unit]
	if !ok || !known {
		return 0, 0, false
	}
	permits = product(count, weight)
	if after == "" || after[0] < '0' || after[0] > '9' {
		after = "1" + after
	}
	periodUS, ok = parseDuration(after)
	return permits, periodUS, ok && permits >= 1 && permits <= permitsMax
}

// parseDuration reads a duration such as `500ms`, in µs.
func parseDuration(text string) (us int64, ok bool) {
	count, unit, ok := digits(text)
	weight, known := microsOf[unit]
	us = product(count, weight)
	return us, ok && known && us >= 1 && us <= periodMaxUS
}

// hasControl says whether a text has a control character.
func hasControl(text string) bool {
	for _, r := range text {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return true
		}
	}
	return false
}

// isToken says whether a text is 1 to 128 bytes of a token.
func isToken(text string) bool {
	if len(text) < 1 || len(text) > 128 {
		return false
	}
	for i := range len(text) {
		b := text[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return true
}
