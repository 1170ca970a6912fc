package sluicegate

import (
	"testing"
)

func FuzzQuotas(f *testing.F) {
	for _, text := range []string{`"token_bucket";q=300;w=60`, `"a";q=1, "b";q=5;qu="concurrent-requests"`, ";q=-1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = parseQuotas(text) })
}
