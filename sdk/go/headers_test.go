package sluicegate

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAProblemIsOnlyThatOfARefusal(t *testing.T) {
	if status, body := (Decision{Allowed: true}).Problem(); status != 200 || body != nil {
		t.Errorf("%d %s", status, body)
	}
	if status, body := (Decision{}).Problem(); status != 429 || !strings.Contains(string(body), "quota-exceeded") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := (Decision{Mode: ModeDeny}).Problem(); status != 503 || !strings.Contains(string(body), "temporary-reduced-capacity") {
		t.Errorf("%d %s", status, body)
	}
}

func TestEnumerationsHaveNames(t *testing.T) {
	got := fmt.Sprint(FailLocal, FailAllow, FailDeny, FailureMode(99), Day, Week, Month, Year, Unit(-1), RateLimitHeaders, XRateLimitHeaders, NoHeaders)
	if want := "local allow deny 99 day week month year -1 ratelimit x_ratelimit none"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

func FuzzQuotas(f *testing.F) {
	for _, text := range []string{`"token_bucket";q=300;w=60`, `"a";q=1, "b";q=5;qu="concurrent-requests"`, ";q=-1", ""} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = parseQuotas(text) })
}

func TestWhatNobodyDecidedHasNoFieldsOfABudget(t *testing.T) {
	for mode, status := range map[Mode]int{ModeDeny: 503, ModeShed: 503, ModeStore: 429, ModeLocal: 429, ModeRemembered: 429} {
		d := Decision{Mode: mode, Rule: "r", Limit: 5, CanRetry: true, RetryAfter: 100 * time.Millisecond, Quotas: []Quota{{Rule: "r", Limit: 5}}}
		fields := d.Headers(RateLimitHeaders, XRateLimitHeaders)
		got, body := d.Problem()
		if fields["Retry-After"] != "1" || (fields["RateLimit"] != "") != (status == 429) || (len(fields) == 1) != (status == 503) ||
			got != status || strings.Contains(string(body), "temporary-reduced-capacity") != (status == 503) {
			t.Errorf("%s: %v, %d %s", mode, fields, got, body)
		}
	}
	if fields := (Decision{Allowed: true, Mode: ModeAllow, Rule: "r"}).Headers(); len(fields) > 0 {
		t.Error(fields)
	}
}
