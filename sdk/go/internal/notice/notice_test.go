package notice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

// newLog returns a log, its clock, and what gives the lines since the last call.
func newLog() (*Log, *testkit.Manual, func() []string) {
	clock, out := testkit.NewManual(), &bytes.Buffer{}
	strip := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	l := New(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: strip})), clock.Now)
	return l, clock, func() []string {
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		out.Reset()
		if lines[0] == "" {
			return nil
		}
		return lines
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestACauseHasOneLineAMinuteAndOneWhenItIsOver(t *testing.T) {
	l, clock, lines := newLog()
	for range 100 {
		l.Warn("redis", "refused", "gone", "address", "a")
	}
	expect(t, lines(), "level=WARN msg=gone address=a")
	l.Warn("redis", "timeout", "gone")
	expect(t, lines(), "level=WARN msg=gone")
	clock.Advance(Every)
	l.Warn("redis", "refused", "gone")
	expect(t, lines(), "level=WARN msg=gone left_out=99")
	clock.Advance(time.Second)
	l.Recovered("other", "back")
	l.Recovered("redis", "back", "address", "a")
	l.Recovered("redis", "back")
	expect(t, lines(), "level=INFO msg=back address=a after=1m1s")
}

func TestACauseThatComesAndGoesHasTwoLinesAMinute(t *testing.T) {
	l, clock, lines := newLog()
	for range 50 {
		l.Warn("redis", "refused", "gone")
		l.Recovered("redis", "back")
		clock.Advance(time.Second)
	}
	expect(t, lines(), "level=WARN msg=gone", "level=INFO msg=back after=0s")
	clock.Advance(10 * time.Second)
	l.Warn("redis", "refused", "gone")
	expect(t, lines(), "level=WARN msg=gone left_out=49")
}

func TestCausesAreBounded(t *testing.T) {
	l, clock, lines := newLog()
	for i := range causesMax + 50 {
		l.Warn(fmt.Sprint("policy ", i), "unknown", "unknown")
	}
	if n := len(lines()); n != causesMax || l.count != causesMax || int(l.open.Load()) != causesMax {
		t.Errorf("%d lines, %d causes", n, l.count)
	}
	clock.Advance(Every)
	l.Warn("one more", "unknown", "unknown")
	if n := len(lines()); n != 1 || l.count != 1 || l.open.Load() != 1 || len(l.scopes) != 1 {
		t.Errorf("%d lines, %d causes, %d open", n, l.count, l.open.Load())
	}
}

func TestNoLogLogsNothing(*testing.T) {
	var l *Log
	l.Warn("a", "b", "c")
	l.Recovered("a", "b")
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestErrorsOfOneCauseHaveOneKind(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		kind string
	}{
		{redisError("WRONGPASS invalid username-password pair"), "WRONGPASS"}, {redisError("OOM command not allowed"), "OOM"},
		{fmt.Errorf("x: %w", redisError("NOAUTH Authentication required.")), "NOAUTH"},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "refused"}, {context.DeadlineExceeded, "timeout"}, {os.ErrDeadlineExceeded, "timeout"},
		{io.EOF, "closed"}, {dial(syscall.ECONNRESET), "closed"}, {&net.DNSError{Name: "no.such", IsTimeout: true}, "name"}, {errors.New("odd"), "other"},
	} {
		if kind := KindOf(c.err); kind != c.kind {
			t.Errorf("%v: %s, expected %s", c.err, kind, c.kind)
		}
	}
}

// handler has a function handle records.
type handler struct {
	slog.Handler
	handle func(slog.Record)
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	h.handle(r)
	return nil
}

func TestTheEndIsLoggedAfterTheBeginningAlsoIfAnotherGoroutineSeesItMeanwhile(t *testing.T) {
	var l *Log
	var lines []string
	l = New(slog.New(handler{handle: func(r slog.Record) {
		if r.Level == slog.LevelWarn {
			done := make(chan struct{})
			go func() {
				defer close(done)
				l.Recovered("redis", "answers")
			}()
			<-done
		}
		lines = append(lines, r.Message)
	}}), testkit.NewManual().Now)
	l.Warn("redis", "late", "is late")
	if want := []string{"is late", "answers"}; !slices.Equal(lines, want) {
		t.Errorf("%q, expected %q", lines, want)
	}
}

func TestALoggerThatPanicsStopsNoLaterLine(t *testing.T) {
	var lines []string
	l := New(slog.New(handler{handle: func(r slog.Record) {
		lines = append(lines, r.Message)
		panic("full")
	}}), testkit.NewManual().Now)
	for _, log := range []func(){
		func() { l.Warn("redis", "late", "is late") },
		func() { l.Recovered("redis", "answers") },
	} {
		func() {
			defer func() { _ = recover() }()
			log()
		}()
	}
	if want := []string{"is late", "answers"}; !slices.Equal(lines, want) {
		t.Errorf("%q, expected %q", lines, want)
	}
}
