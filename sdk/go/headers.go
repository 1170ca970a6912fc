package sluicegate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HeaderStyle chooses header fields.
type HeaderStyle int

const (
	// RateLimitHeaders are `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10.
	RateLimitHeaders HeaderStyle = iota
	// XRateLimitHeaders are `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (seconds from now).
	XRateLimitHeaders
	// NoHeaders is none of them; a refusal has `Retry-After` all the same.
	NoHeaders
)

// String returns the name.
func (s HeaderStyle) String() string { return nameOf(int(s), "ratelimit", "x_ratelimit", "none") }

// nameOf returns the name of a value of an enumeration.
func nameOf(value int, names ...string) string {
	if value < 0 || value >= len(names) {
		return strconv.Itoa(value)
	}
	return names[value]
}

// Headers returns the header fields of a decision by name: those of the styles (default: RateLimitHeaders), and
// `Retry-After` in whole seconds if the request is refused and can pass later. In the modes allow, deny and shed nothing is
// known of the budget, so there is no other field then.
func (d Decision) Headers(styles ...HeaderStyle) map[string]string {
	if len(styles) == 0 {
		styles = []HeaderStyle{RateLimitHeaders}
	}
	out := map[string]string{}
	next := d.ResetAfter
	if d.RetryAfterSeconds() > 0 {
		next = d.RetryAfter
		out["Retry-After"] = strconv.FormatInt(d.RetryAfterSeconds(), 10)
	}
	if d.Mode == ModeAllow || d.undecided() {
		return out
	}
	for _, style := range styles {
		switch style {
		case RateLimitHeaders:
			if len(d.Quotas) > 0 {
				out["RateLimit-Policy"] = quotasText(d.Quotas)
			}
			out["RateLimit"] = fmt.Sprintf(`"%s";r=%d;t=%d`, d.Rule, d.Remaining, seconds(next))
		case XRateLimitHeaders:
			out["X-RateLimit-Limit"] = strconv.FormatInt(d.Limit, 10)
			out["X-RateLimit-Remaining"] = strconv.FormatInt(d.Remaining, 10)
			out["X-RateLimit-Reset"] = strconv.FormatInt(seconds(next), 10)
		}
	}
	return out
}

// undecided reports whether the request was refused because nobody could decide it.
func (d Decision) undecided() bool { return d.Mode == ModeDeny || d.Mode == ModeShed }

// withoutRedis reports whether Redis did not decide in time. It may have granted a permit all the same.
func (d Decision) withoutRedis() bool { return d.undecided() || d.Mode == ModeLocal }

func quotasText(quotas []Quota) string {
	var out []string
	for _, q := range quotas {
		text := fmt.Sprintf(`"%s";q=%d`, q.Rule, q.Limit)
		if q.Concurrent {
			text += `;qu="concurrent-requests"`
		} else if q.Window > 0 && q.Window%time.Second == 0 {
			text += fmt.Sprintf(";w=%d", q.Window/time.Second)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// parseQuotas reads `RateLimit-Policy` of a server.
func parseQuotas(text string) (out []Quota) {
	for _, item := range strings.Split(text, ", ") {
		parts := strings.Split(item, ";")
		q := Quota{Rule: strings.Trim(parts[0], `"`)}
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(part, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch name {
			case "q":
				q.Limit = n
			case "w":
				q.Window = time.Duration(min(n, int64(1<<63-1)/int64(time.Second))) * time.Second
			case "qu":
				q.Concurrent = value == `"concurrent-requests"`
			}
		}
		if q.Rule != "" {
			out = append(out, q)
		}
	}
	return out
}

// ProblemType is the media type of the body that Problem returns.
const ProblemType = "application/problem+json"

// Problem returns the status and the body of the response to a refused request: 429 and a problem (RFC 9457) of the type
// quota-exceeded, or 503 and temporary-reduced-capacity if nobody decided: Redis did not answer and the policy is
// `on_store_failure: deny`, or it did not decide in time (mode shed). Of an allowed request it returns 200 and no body.
func (d Decision) Problem() (status int, body []byte) {
	if d.Allowed {
		return http.StatusOK, nil
	}
	problem := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Violated []string `json:"violated-policies,omitempty"`
	}{
		"https://iana.org/assignments/http-problem-types#quota-exceeded",
		"Request cannot be satisfied as assigned quota has been exceeded", 429,
		fmt.Sprintf("the cost exceeds the limit of %d", d.Limit),
		[]string{d.Rule},
	}
	if d.CanRetry {
		problem.Detail = fmt.Sprintf("retry in %d s", d.RetryAfterSeconds())
	}
	if d.undecided() {
		problem.Type = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
		problem.Title = "Request cannot be satisfied due to temporary server capacity constraints"
		problem.Status, problem.Violated = 503, nil
	}
	body, _ = json.Marshal(problem) // of texts and numbers
	return problem.Status, body
}
