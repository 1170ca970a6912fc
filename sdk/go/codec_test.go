package sluicegate

import (
	"strings"
	"testing"
)

func FuzzReply(f *testing.F) {
	one := "\x01\x00" + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 3) + "\x00\x00\x00\x00" // of 27 bytes
	several := one + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00", 2)
	for _, seed := range []string{"\x00", "\x02", "\x03abc", "\x04rules", one, several} {
		f.Add(seed, 1, 0)
	}
	f.Add(several+"\x01\x00\x00\x00\x02\x00\x00\x00", 1, 2)
	set := ruleSetOf(f, PerSecond(1).Named("a"), PerHour(9).Named("b"))
	f.Fuzz(func(t *testing.T, text string, v, debts int) {
		got, err := decodeReply(text, set, verb(min(max(v, 1), 9)), min(max(debts, 0), 8))
		if err == nil && got.kind <= replyAllowed {
			for i, used := range (answer{verdict: got.verdict, set: set, left: got.left}).inUse(set) {
				if i < len(set.rules) && (used < 0 || used > set.rules[i].limit()) {
					t.Errorf("%q: %d are in use of rule %d", text, used, i)
				}
			}
		}
		_, _, _ = parseCallerHead([]byte(text))
		_, _ = parseRules([]byte(text))
	})
}

func FuzzQuotas(f *testing.F) {
	for _, text := range []string{`"token_bucket";q=300;w=60`, `"a";q=1, "b";q=5;qu="concurrent-requests"`, ";q=-1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = parseQuotas(text) })
}
