package sluicegate

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// locked starts a Redis that wants a password.
func locked(t *testing.T) string {
	t.Helper()
	addr := freeAddr()
	server, err := startRedis(addr, "--requirepass", "right")
	if err != nil {
		skipOrFail(t, err.Error())
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	return addr
}

// strange starts what answers every line, but is no Redis.
func strange(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	return strings.TrimPrefix(web.URL, "http://")
}

// slowly returns a dialer that takes its time.
func slowly(d time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := wire.Sleep(ctx, d); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
}

// byOptions makes a gate of a client with these options, whose dials are tried once unless the options have a number.
func byOptions(t *testing.T, o redis.Options, options ...Option) *Gate {
	t.Helper()
	o.ContextTimeoutEnabled, o.DialerRetries = true, max(o.DialerRetries, 1)
	client := redis.NewClient(&o)
	gate, err := Direct(client, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close(); client.Close() })
	return gate
}

func TestARedisThatAnswersIsNotLoggedAsOneThatDoesNot(t *testing.T) {
	addr := locked(t)
	for name, c := range map[string]struct {
		options        redis.Options
		message, error string
	}{
		"no password":    {redis.Options{Addr: addr}, "redis answers with an error", "NOAUTH"},
		"wrong password": {redis.Options{Addr: addr, Password: "secret"}, "redis answers with an error", "WRONGPASS"},
		"not a Redis":    {redis.Options{Addr: strange(t)}, "what answers is not redis", "HTTP/1.1 400"},
		"nothing":        {redis.Options{Addr: freeAddr()}, "redis does not answer", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			gate := byOptions(t, c.options, log.logger(), Deadline(patient))
			mail, err := gate.Limit("mail", PerHour(9))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if d, err := mail.Allow(context.Background(), "k"); err != nil || d.Mode != ModeLocal {
					t.Errorf("%+v, %v", d, err)
				}
			}
			if got := log.with("level=WARN", `msg="`+c.message+`"`, c.options.Addr, c.error, "mode=local"); len(got) != 1 || len(log.with("secret")) > 0 {
				t.Errorf("%s", log)
			}
		})
	}
}

// A request has less time than a dial that is tried again takes.
func TestAnErrorHasWhyThereIsNoConnection(t *testing.T) {
	ctx, addr := context.Background(), locked(t)
	unknown := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nosuch.example", IsNotFound: true}}
	}
	for name, c := range map[string]struct {
		options redis.Options
		text    string
	}{
		"refused":        {redis.Options{Addr: freeAddr()}, "dial tcp"},
		"unknown host":   {redis.Options{Addr: "nosuch.example:6379", Dialer: unknown}, "dial tcp: lookup nosuch.example: no such host"},
		"wrong password": {redis.Options{Addr: addr, Password: "secret", Dialer: slowly(200 * time.Millisecond)}, "WRONGPASS"},
		"no password":    {redis.Options{Addr: addr}, "NOAUTH"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			c.options.DialerRetries = 3
			gate := byOptions(t, c.options, log.logger())
			if err := gate.Require(ctx, "orders"); !errors.Is(err, ErrNotCharged) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Require: %v", err)
			}
			if _, err := gate.Policy("orders").Allow(ctx, "k"); !errors.Is(err, ErrNotCharged) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Allow: %v", err)
			}
			if got := log.with("no decision", c.text); len(got) != 1 || len(log.with("secret")) > 0 {
				t.Errorf("%s", log)
			}
		})
	}
}
