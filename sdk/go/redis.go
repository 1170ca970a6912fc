package sluicegate

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a copy of spec/redis/decide.lua, as no file outside of a module can be embedded; a test compares them.
//
//go:embed decide.lua
var script string

// scriptArg is scriptSHA as an argument of a command.
var scriptArg = sync.OnceValue(func() any { return scriptSHA() })

var scriptSHA = sync.OnceValue(func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
})

// onceCmd is a command that the client library never sends a second time by itself: a reply that was lost is no reason
// to charge twice. It notes whether it was written to a connection, for which its arguments are asked for.
type onceCmd struct {
	redis.Cmd
	written atomic.Bool
	args    [argsMax]any
}

func (*onceCmd) NoRetry() bool { return true }

func (c *onceCmd) Args() []any {
	c.written.Store(true)
	return c.Cmd.Args()
}

// redisConn is the program's own client of Redis.
type redisConn struct{ client redis.UniversalClient }

// once sends a command at most once, and gives its reply. A notSent error says that the command was not sent.
func (c redisConn) once(ctx context.Context, client redis.UniversalClient, args ...any) (any, error) {
	cmd := &onceCmd{}
	cmd.Cmd = *redis.NewCmd(ctx, append(cmd.args[:0], args...)...)
	_ = client.Process(ctx, cmd) // the error is that of Result
	got, err := cmd.Result()
	if err != nil && !cmd.written.Load() {
		err = notSent{err}
	}
	return got, err
}

// master gives the client of the node that has a key.
func (c redisConn) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	switch client := c.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Ring:
		return client.GetShardClientForKey(key)
	default:
		return client, nil
	}
}

// refusedMax is how often a call is sent again that Redis refused without beginning it.
const refusedMax = 3

// tryAgainAfter is the pause after TRYAGAIN, while slots move.
const tryAgainAfter = time.Millisecond

// argsMax is the arguments of a call: its name, the script, the number of keys, two keys, the rules and the request.
const argsMax = 7

// decide calls the script for one key, or for a key and the note of its debt. What Redis refused without beginning it
// is sent again, at most three times; nothing else is. MOVED and ASK are followed by the client library.
func (c redisConn) decide(ctx context.Context, keys []string, rules, ask any) (string, error) {
	args := append(make([]any, 0, argsMax), "evalsha", scriptArg(), len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, rules, ask)
	for tries := 0; ; tries++ {
		got, err := c.once(ctx, c.client, args...)
		if err == nil {
			return text(got)
		}
		name := errorName(err)
		if tries == refusedMax || name != "NOSCRIPT" && name != "TRYAGAIN" {
			return "", err
		}
		if name == "TRYAGAIN" {
			if err := sleep(ctx, tryAgainAfter); err != nil {
				return "", notSent{err}
			}
			continue
		}
		if err := c.load(ctx, keys[0], tries > 0); err != nil {
			return "", notSent{err}
		}
	}
}

// load gives the script to the master of a key. everywhere: to all masters of a cluster, as one of them answers for the
// key whose slot is on its way to it.
func (c redisConn) load(ctx context.Context, key string, everywhere bool) error {
	if cluster, ok := c.client.(*redis.ClusterClient); ok && everywhere {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			_, err := c.once(ctx, node, "script", "load", script)
			return err
		})
	}
	node, err := c.master(ctx, key)
	if err == nil {
		_, err = c.once(ctx, node, "script", "load", script)
	}
	return err
}

var errNoString = errors.New("the reply is not a string")

func text(got any) (string, error) {
	if s, ok := got.(string); ok {
		return s, nil
	}
	return "", errNoString
}

// announce puts rules where programs look for them that meet states of theirs.
func (c redisConn) announce(ctx context.Context, key string, rules []byte, lifeMS int64) error {
	_, err := c.once(ctx, c.client, "set", key, rules, "px", lifeMS)
	return err
}

// rulesAt reads rules that another program put there; nil if there are none.
func (c redisConn) rulesAt(ctx context.Context, key string) ([]byte, error) {
	got, err := c.once(ctx, c.client, "get", key)
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := text(got)
	return []byte(s), err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notSent is an error of something before the call itself, which was not executed then.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// class is what a question to Redis came to, if to no decision.
type class int

const (
	classNone      class = iota
	classNoAnswer        // Redis does not answer
	classContended       // Redis answers, but came to no decision
	classThisKey         // Redis cannot decide this key; others are not affected
	classCaller          // a mistake of the caller's, or a caller that went away
)

// failure is why a question got no decision.
type failure struct {
	class   class
	charged bool // perhaps charged
	cause   error
}

func (f *failure) Error() string { return f.cause.Error() }

// refusals are errors with which Redis says that it did not execute a call, and does not serve.
var refusals = map[string]bool{
	"NOSCRIPT": true, "MOVED": true, "ASK": true, "TRYAGAIN": true, "CLUSTERDOWN": true, "CROSSSLOT": true,
	"LOADING": true, "MASTERDOWN": true, "BUSY": true, "NOAUTH": true, "READONLY": true, "NOREPLICAS": true,
	"MISCONF": true, "NOPERM": true, "OOM": true,
}

// errorName gives the name of an error of Redis, also where its place in the script stands before it; "" if Redis did
// not say one.
func errorName(err error) string {
	var said redis.Error
	if !errors.As(err, &said) {
		return ""
	}
	message := said.Error()
	// Redis before 7 wraps the error of a command in a script, once or twice.
	if strings.HasPrefix(message, "@user_script:") || strings.HasPrefix(message, "ERR Error running script") {
		if _, after, ok := strings.Cut(message, ": -"); ok {
			message = after
		}
	}
	name, _, _ := strings.Cut(message, " ")
	return name
}

// classOf gives the class of an error of a call. The context of the caller tells whether the caller went away.
func classOf(err error) *failure {
	if name := errorName(err); name != "" {
		switch {
		case name == "WRONGTYPE":
			return &failure{classThisKey, false, err}
		case refusals[name]:
			return &failure{classNoAnswer, false, err}
		default:
			return &failure{classNoAnswer, true, err}
		}
	}
	return &failure{classNoAnswer, !surelyNotSent(err), err}
}

// surelyNotSent says whether an error means that the command was not sent.
func surelyNotSent(err error) bool {
	var early notSent
	return errors.As(err, &early)
}
