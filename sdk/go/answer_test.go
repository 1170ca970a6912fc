package sluicegate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	goodLeft     = `"allowed":true,"remaining":4,"retry_after_us":0,"reset_after_us":1`
	goodAnswer   = `{"code":1,"granted":1,"wait_us":0,"limit":5,"rule":"r",` + goodLeft + `}`
	goodRuled    = `{"name":"r","algorithm":"fixed_window","limit":5,"window_s":60,"left":{` + goodLeft + `}}`
	goodExplains = `{"policy":"a","would_charge":1,"rules_of":"policy","overflow":"reject","on_store_failure":"local","apps":null,` +
		`"decision":` + goodAnswer + `,"rules":[` + goodRuled + `]}`
	goodSettles = `{"code":1,"refunded":0,"taken":0,"missing":0,"decision":` + goodAnswer + `}`
	goodItems   = `{"answers":[` + goodAnswer + `,` + goodAnswer + `]}`
	goodBatch   = `{"allowed":true,"code":1,"answers":[` + goodAnswer + `,` + goodAnswer + `]}`
	goodRefused = `{"allowed":false,"code":-1,"refused":1,"answers":[` + goodAnswer + `]}`
)

// falseServer answers every request with the same.
func falseServer(t *testing.T, status int, body string) *Gate {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return remoteOf(t, server.URL)
}

// asServer is an error of a server with a status.
func asServer(err error, status int) bool {
	var out *Error
	return errors.As(err, &out) && out.Name == "server" && out.Status == status
}

// without returns an answer without a member.
func without(answer, member string) string {
	from := strings.Index(answer, `"`+member+`":`)
	to := from + strings.IndexAny(answer[from:], ",}")
	if answer[to] == ',' {
		to++
	}
	return strings.Replace(answer[:from]+answer[to:], ",}", "}", 1)
}

func TestAnAnswerThatIsNoDecisionIsAnErrorOfTheServer(t *testing.T) {
	ctx := context.Background()
	bad := []string{
		``, `null`, `[]`, `1`, `"allowed"`, `{}`, `<html>`, `{"allowed":true}`, goodAnswer[:40], strings.Repeat("[", 500_000),
		strings.Replace(goodAnswer, `"allowed":true`, `"allowed":"true"`, 1), strings.Replace(goodAnswer, `"rule":"r"`, `"rule":1`, 1),
		strings.Replace(goodAnswer, `{`, `{"mode":1,`, 1), strings.Replace(goodAnswer, `{`, `{"overflow":{},`, 1),
		strings.Replace(goodAnswer, `{`, `{"held_us":-1,`, 1), strings.Replace(goodAnswer, `{`, `{"response":[],`, 1),
		strings.Replace(goodAnswer, `{`, `{"response":{},`, 1), strings.Replace(goodAnswer, `{`, `{"response":{"status":99,"headers":{},"body":""},`, 1),
		strings.Replace(goodAnswer, `{`, `{"response":{"status":200,"headers":{"a":1},"body":""},`, 1),
		goodAnswer + `{}`,
	}
	for _, member := range []string{"allowed", "granted", "wait_us", "limit", "remaining", "retry_after_us", "reset_after_us", "rule"} {
		bad = append(bad, without(goodAnswer, member))
	}
	for _, number := range []string{`"granted":1`, `"wait_us":0`, `"limit":5`, `"remaining":4`, `"retry_after_us":0`, `"reset_after_us":1`} {
		name, _, _ := strings.Cut(number, ":")
		for _, wrong := range []string{"-1", "9007199254740993", "1e400", "1.5", `"1"`, "true", "[]", "null"} {
			if wrong != "null" || name != `"retry_after_us"` {
				bad = append(bad, strings.Replace(goodAnswer, number, name+":"+wrong, 1))
			}
		}
	}
	for _, body := range bad {
		gate := falseServer(t, 200, body)
		d, err := gate.Policy("a").Allow(ctx, "k")
		if !asServer(err, 200) || err.Error() != "server: 200 the answer is no decision" || d.Allowed {
			t.Errorf("%.200s: %+v, %v", body, d, err)
		}
	}
	if d, err := falseServer(t, 200, goodAnswer).Policy("a").Allow(ctx, "k"); err != nil || !d.Allowed || d.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
	never := strings.Replace(strings.Replace(goodAnswer, `"retry_after_us":0`, `"retry_after_us":null`, 1), "true", "false", 1)
	if d, err := falseServer(t, 200, never).Policy("a").Allow(ctx, "k"); err != nil || d.Allowed || d.CanRetry {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestWhatOnlyAServerDoesReadsItsAnswersAsStrictly(t *testing.T) {
	ctx := context.Background()
	explain := func(g *Gate) error { _, err := g.Policy("a").Explain(ctx, "k", 1); return err }
	settle := func(g *Gate) error { _, err := g.Policy("a").Settle(ctx, "k", "id", 1, 1); return err }
	all := func(g *Gate) error {
		_, err := g.AllowAll(ctx, Check{g.Policy("a"), "k", 1}, Check{g.Policy("a"), "j", 1})
		return err
	}
	each := func(g *Gate) error {
		results, err := g.AllowEach(ctx, Check{g.Policy("a"), "k", 1}, Check{g.Policy("a"), "j", 1})
		if err == nil {
			err = results[1].Err
		}
		return err
	}
	for _, c := range []struct {
		name string
		call func(*Gate) error
		good string
		bad  []string
	}{
		{"explain", explain, goodExplains, []string{
			`null`, `{}`, without(goodExplains, "would_charge"), without(goodExplains, "rules_of"), without(goodExplains, "overflow"),
			without(goodExplains, "name"), without(goodExplains, "algorithm"), strings.Replace(goodExplains, goodRuled, `null`, 1),
			strings.Replace(goodExplains, goodAnswer, `null`, 1), strings.Replace(goodExplains, `"left":{`+goodLeft, `"left":{`, 1),
			strings.Replace(goodExplains, `"window_s":60`, `"window_s":-60`, 1), strings.Replace(goodExplains, `[`+goodRuled+`]`, `null`, 1),
		}},
		{"settle", settle, goodSettles, []string{
			`null`, `{}`, without(goodSettles, "taken"), strings.Replace(goodSettles, `"missing":0`, `"missing":-1`, 1),
			strings.Replace(goodSettles, goodAnswer, `{}`, 1),
		}},
		{"each", each, goodItems, []string{
			`null`, `{}`, goodAnswer, `{"answers":null}`, `{"answers":[` + goodAnswer + `]}`, `{"answers":[` + goodAnswer + `,null]}`,
			`{"answers":[` + goodAnswer + `,{"allowed":true}]}`, `{"answers":[` + goodAnswer + `,[]]}`,
		}},
		{"all", all, goodBatch, []string{
			`null`, `{}`, goodItems, `{"allowed":true,"answers":[` + goodAnswer + `]}`, `{"allowed":true,"answers":[` + goodAnswer + `,{}]}`,
			`{"allowed":false,"answers":[` + goodAnswer + `]}`, strings.Replace(goodRefused, `"refused":1`, `"refused":2`, 1),
			strings.Replace(goodRefused, `"refused":1`, `"refused":-1`, 1), `{"allowed":false,"refused":0,"answers":[]}`,
		}},
		{"all, refused", all, goodRefused, nil},
	} {
		if err := c.call(falseServer(t, 200, c.good)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, body := range c.bad {
			if err := c.call(falseServer(t, 200, body)); !asServer(err, 200) {
				t.Errorf("%s of %.200s: %v", c.name, body, err)
			}
		}
	}
}

func TestAReplyOverRESPThatIsNoDecisionIsAnErrorOfTheServer(t *testing.T) {
	ctx := context.Background()
	array := func(places ...any) string {
		out := fmt.Sprintf("*%d\r\n", len(places))
		for _, place := range places {
			switch v := place.(type) {
			case nil:
				out += "$-1\r\n"
			case string:
				out += fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
			default:
				out += fmt.Sprintf(":%d\r\n", v)
			}
		}
		return out
	}
	for i, c := range []struct {
		reply string
		want  *Error
	}{
		{array(1, 5, 4, 0, 1, 0, "r", "store"), nil},
		{array(-1, 5, 0, -1, 1, 0, nil, nil), nil},
		{array(-1, 5, 0, 1, 1, 0, "r", "store", "degrade", "less", 203), nil},
		{array(0, 0, 0, 0, 0, 0, nil, nil), ErrUnknownPolicy},
		{"$-1\r\n", ErrServer}, {"+OK\r\n", ErrServer}, {":1\r\n", ErrServer}, {"*-1\r\n", ErrServer}, {"*0\r\n", ErrServer},
		{array(1, 5, 4, 0, 1, 0, "r"), ErrServer},
		{array(2, 5, 4, 0, 1, 0, "r", "store"), ErrServer}, {array(-2, 5, 4, 0, 1, 0, "r", "store"), ErrServer},
		{array("1", 5, 4, 0, 1, 0, "r", "store"), ErrServer}, {array(1, nil, 4, 0, 1, 0, "r", "store"), ErrServer},
		{array(1, -5, 4, 0, 1, 0, "r", "store"), ErrServer}, {array(1, 5, -4, 0, 1, 0, "r", "store"), ErrServer},
		{array(1, 5, 4, -2, 1, 0, "r", "store"), ErrServer}, {array(1, 5, 4, 0, -1, 0, "r", "store"), ErrServer},
		{array(1, 5, 4, 0, 1, -1, "r", "store"), ErrServer}, {array(1, int64(kernel.UnitsMax+1), 4, 0, 1, 0, "r", "store"), ErrServer},
		{array(1, 5, 4, 0, 1, 0, 7, "store"), ErrServer}, {array(1, 5, 4, 0, 1, 0, "r", 7), ErrServer},
		{array(-1, 5, 4, 0, 1, 0, "r", "store", "degrade", 7, 203), ErrServer},
		{array(-1, 5, 4, 0, 1, 0, "r", "store", "degrade", "less", 99), ErrServer},
		{array(-1, 5, 4, 0, 1, 0, "r", "store", "degrade", "less", "203"), ErrServer},
	} {
		d, err := remoteOf(t, "resp://"+falseRESP(t, c.reply)).Policy("a").Allow(ctx, "k")
		if c.want == nil && err != nil || c.want != nil && (!errors.Is(err, c.want) || d.Allowed) {
			t.Errorf("%d: %q: %+v, %v", i, c.reply, d, err)
		}
	}
}

// falseRESP answers every command with the same, but for those with which a connection begins.
func falseRESP(t *testing.T, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	answer := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			head, err := in.ReadString('\n')
			words, wrong := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "*")))
			if err != nil || wrong != nil {
				return
			}
			lines := ""
			for range 2 * words {
				line, _ := in.ReadString('\n')
				lines += line
			}
			out := "-ERR unknown\r\n"
			if strings.Contains(strings.ToUpper(lines), "SG.") {
				out = reply
			}
			_, _ = io.WriteString(c, out)
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return l.Addr().String()
}

func TestTextsFromOutsideAreCutInErrors(t *testing.T) {
	ctx, long := context.Background(), strings.Repeat("ü", 300_000)
	const most = lex.TruncateMax + 100 // and what is around them
	check := func(what string, err error, want *Error) {
		t.Helper()
		if !errors.Is(err, want) || len(err.Error()) > most || !strings.Contains(err.Error(), "ü…") || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: %d bytes: %.100s", what, len(err.Error()), err.Error())
		}
	}
	for kind, want := range map[string]*Error{
		"about:blank": ErrServer, "urn:sluicegate:problem:unknown-policy": ErrUnknownPolicy,
		"urn:sluicegate:problem:not-configured": ErrAppMissing, "urn:sluicegate:problem:no-store": ErrPerhapsCharged,
	} {
		_, err := falseServer(t, 503, `{"type":"`+kind+`","status":503,"detail":"`+long+`"}`).Policy("a").Allow(ctx, "k")
		check(kind, err, want)
	}
	_, err := falseServer(t, 503, `{"type":"urn:sluicegate:problem:no-store","status":503,"detail":"`+long+`","charged":"no"}`).Policy("a").Allow(ctx, "k")
	check("no store", err, ErrNotCharged)
	_, err = falseServer(t, 400, `{"status":400,"detail":"max_wait`+long+`"}`).Policy("a").Allow(ctx, "k")
	check("max_wait", err, ErrMaxWaitRange)

	short := strings.Repeat("ü", 10_000)
	_, err = remoteOf(t, "resp://"+falseRESP(t, "-ERR "+short+"\r\n")).Policy("a").Allow(ctx, "k")
	check("RESP", err, ErrServer)
	_, err = remoteOf(t, "resp://"+falseRESP(t, "-NOTCHARGED store: "+short+"\r\n")).Policy("a").Allow(ctx, "k")
	check("RESP, store", err, ErrNotCharged)
	check("Redis", storeError(&wire.Failure{Class: wire.ClassNoAnswer, Charged: true, Cause: redisError("ERR " + short)}, ""), ErrPerhapsCharged)
	check("Redis", storeError(&wire.Failure{Class: wire.ClassNoAnswer, Cause: redisError("ERR " + short)}, ""), ErrNotCharged)
	check("a caller", storeError(&wire.Failure{Class: wire.ClassCaller, Charged: true, Cause: errors.New(short)}, ""), ErrInterrupted)
	if got := lex.Truncate(strings.Repeat("a", lex.TruncateMax)); len(got) != lex.TruncateMax {
		t.Errorf("%d bytes of %d", len(got), lex.TruncateMax)
	}
}

func TestAnAnswerThatIsTooLongIsAnErrorOfTheServer(t *testing.T) {
	ctx := context.Background()
	_, err := falseServer(t, 200, goodAnswer+strings.Repeat(" ", answerMax)).Policy("a").Allow(ctx, "k")
	if !asServer(err, 200) || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Error(err)
	}
	// A batch may be longer, as a hundred responses of 64 KiB are.
	response := `{"response":{"status":200,"headers":{},"body":"` + strings.Repeat("a", 64<<10) + `"},`
	item := strings.Replace(strings.Replace(goodAnswer, `{`, response, 1), "true", "false", 1)
	gate := falseServer(t, 200, `{"answers":[`+item+strings.Repeat(","+item, 99)+`]}`)
	checks := make([]Check, 100)
	for i := range checks {
		checks[i] = Check{gate.Policy("a"), strconv.Itoa(i), 1}
	}
	results, err := gate.AllowEach(ctx, checks...)
	if err != nil || len(results) != 100 || results[99].Err != nil || len(results[99].Decision.Overflow.Response.Body) != 64<<10 {
		t.Errorf("%d results, %v", len(results), err)
	}
}

func TestDecisionsOfBatchesSleepByTheClockOfTheGate(t *testing.T) {
	ctx, clock := context.Background(), newManual()
	waits := strings.Replace(goodAnswer, `"wait_us":0`, `"wait_us":3600000000`, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"allowed":true,"answers":[`+waits+`]}`)
	}))
	defer server.Close()
	gate, err := Remote(server.URL, WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	check := Check{Limiter: gate.Policy("a"), Key: "k"}
	each, err := gate.AllowEach(ctx, check)
	if err == nil {
		err = errors.Join(each[0].Err, each[0].Decision.Sleep(ctx))
	}
	all, wrong := gate.AllowAll(ctx, check)
	if wrong == nil {
		wrong = all.Decisions[0].Sleep(ctx)
	}
	if slept := clock.Now().Sub(newManual().Now()); err != nil || wrong != nil || slept != 2*time.Hour {
		t.Errorf("%v, %v, %v", err, wrong, slept)
	}
}

func TestAnErrorOfAServerSaysWhetherTheRequestWasCharged(t *testing.T) {
	ctx := context.Background()
	check := func(of string, err error, want Charged) {
		t.Helper()
		var got *Error
		if !errors.As(err, &got) || got.Charged != want || want == "" {
			t.Errorf("%.200s: %#v, expected %s", of, err, want)
		}
		if isDoubt := errors.Is(err, ErrPerhapsCharged); isDoubt && want == ChargedNo || errors.Is(err, ErrNotCharged) && want != ChargedNo {
			t.Errorf("%.200s: %v", of, err)
		}
	}
	for _, e := range testkit.LoadWire[struct {
		Status  int
		Body    string
		Charged Charged
	}](t, "problems.json", 20) {
		gate := falseServer(t, e.Status, e.Body)
		_, err := gate.Policy("a").Allow(ctx, "k")
		check(e.Body, err, e.Charged)
		_, err = gate.Policy("a").Settle(ctx, "k", "id", 2, 1)
		check(e.Body, err, e.Charged)
		_, err = gate.AllowAll(ctx, Check{gate.Policy("a"), "k", 1})
		check(e.Body, err, e.Charged)
	}
	for _, e := range testkit.LoadWire[struct {
		Reply   string
		Charged Charged
	}](t, "error-replies.json", 12) {
		_, err := remoteOf(t, "resp://"+falseRESP(t, e.Reply)).Policy("a").Allow(ctx, "k")
		check(e.Reply, err, e.Charged)
	}
}
