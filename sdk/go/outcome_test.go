package sluicegate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines keeps what a gate logs.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// with returns the lines that have all these words.
func (l *lines) with(words ...string) (out []string) {
	for _, line := range strings.Split(l.String(), "\n") {
		has := line != ""
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			out = append(out, line)
		}
	}
	return out
}

// logger returns the option by which a gate logs there.
func (l *lines) logger() Option { return Logger(slog.New(slog.NewTextHandler(l, nil))) }

func TestWhatMiddlewaresHideIsLoggedOnceAMinute(t *testing.T) {
	addr, ctx, log := redisAddr(t), context.Background(), &lines{}
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate := direct(t, addr, log.logger())
	for range 20 {
		_, _ = gate.Policy("ordres").Allow(ctx, "alice")
		_, _ = gate.Policy("a").Allow(ctx, "")
	}
	gone, end := context.WithCancel(ctx)
	end()
	_, _ = gate.Policy("other").Allow(gone, "alice")
	for _, words := range [][]string{{"level=WARN", "no decision", "policy=ordres", addr, "unknown policy"}, {"policy=a", "key: is empty"}} {
		if got := log.with(words...); len(got) != 1 {
			t.Errorf("%v: %s", words, log)
		}
	}
	if len(log.with("alice")) > 0 || len(log.with("policy=other")) > 0 {
		t.Errorf("%s", log)
	}
	if d, err := gate.Policy("a").Allow(ctx, "alice"); err != nil || d.Mode != ModeStore || len(log.with("again")) > 0 {
		t.Errorf("%+v, %v, %s", d, err, log)
	}
	publishRecords(t, addr, 2, map[string]string{"ordres": recordOf(t, 1, PerHour(1))})
	eventually(t, "the policy is not found", func() bool {
		_, err := gate.Policy("ordres").Allow(ctx, "alice")
		return err == nil
	})
	if got := log.with("level=INFO", "requests are decided again", "policy=ordres"); len(got) != 1 {
		t.Errorf("%s", log)
	}
}

func TestAServerThatIsAwayIsLoggedOnceAMinute(t *testing.T) {
	ctx, gone := context.Background(), freeAddr()
	for _, scheme := range []string{"http", "resp"} {
		log, clock := &lines{}, newManual()
		gate := remoteOf(t, scheme+"://"+gone, log.logger(), WithClock(clock), Token("secret"))
		for range 20 {
			_, _ = gate.Policy("a").Allow(ctx, "alice")
			_, _ = gate.Policy("b").Allow(ctx, "alice")
		}
		if got := log.with("level=WARN", "address="+gone, "refused", "meanwhile=\"nothing"); len(got) != 1 {
			t.Errorf("%s: %s", scheme, log)
		}
		clock.Advance(time.Minute)
		_, _ = gate.Policy("a").Allow(ctx, "alice")
		if got := log.with("level=WARN", "left_out=39"); len(got) != 1 || len(log.with("secret")) > 0 || len(log.with("alice")) > 0 {
			t.Errorf("%s: %s", scheme, log)
		}
	}
}

func TestALoggerThatIsNilLogsNothing(t *testing.T) {
	gate := newGate(t, newManual(), Logger(nil))
	if _, err := gate.Policy("a").Allow(context.Background(), "k"); !errors.Is(err, ErrUnknownPolicy) {
		t.Error(err)
	}
}

func TestAnErrorOfAnAddressHasNoPassword(t *testing.T) {
	for address, want := range map[string]string{
		"redis://user:secret@gate:6379":       "not an address of a server: `redis://***@gate:6379`; expected http, https, resp, resps or unix",
		"user:secret@gate":                    "not an address of a server: `***@gate`; expected http, https, resp, resps or unix",
		"http://user:sec%ret@gate":            "not an address of a server: `http://***@gate`; expected http, https, resp, resps or unix",
		"http://user:secret@gate?timeout=5&x": "not an address of a server: `http://gate`: unknown parameter `timeout`; an address has none: use options such as Deadline",
		"resp://user:secret@gate:6380?db=1":   "not an address of a server: `resp://gate:6380`: unknown parameter `db`; an address has none: use options such as Deadline",
	} {
		if _, err := Remote(address); !errors.Is(err, ErrAddress) || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}
