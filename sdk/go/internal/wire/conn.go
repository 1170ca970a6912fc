package wire

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a copy of spec/redis/decide.lua, as no file outside of a module can be embedded; a test compares them.
//
//go:embed decide.lua
var Script string

// scriptSHA is the name of the script, as an argument of a command.
var scriptSHA = sync.OnceValue(func() any {
	sum := sha1.Sum([]byte(Script))
	return hex.EncodeToString(sum[:])
})

// onceCmd is a command that the client library never sends a second time by itself: a reply that was lost is no reason
// to charge twice. It keeps whether it was written to a connection, for which its arguments are read.
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

// Conn is the program's own client of Redis.
type Conn struct{ Client redis.UniversalClient }

// addressesMax is how many addresses of a cluster a message names.
const addressesMax = 3

// Address returns where the Redis is, for messages: with the database, if it is not the first, and without a password.
func (c Conn) Address() string {
	var all []string
	switch client := c.Client.(type) {
	case *redis.Client:
		if db := client.Options().DB; db != 0 {
			return client.Options().Addr + "/" + strconv.Itoa(db)
		}
		return client.Options().Addr
	case *redis.ClusterClient:
		all = client.Options().Addrs
	case *redis.Ring:
		all = slices.Sorted(maps.Values(client.Options().Addrs))
	}
	if len(all) == 0 {
		return "an address that only its client knows"
	}
	if len(all) > addressesMax {
		return strings.Join(all[:addressesMax], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// HasTLS reports whether the client connects with TLS, or is one whose options are not known.
func (c Conn) HasTLS() bool {
	switch client := c.Client.(type) {
	case *redis.Client:
		return client.Options().TLSConfig != nil
	case *redis.ClusterClient:
		return client.Options().TLSConfig != nil
	default:
		return true
	}
}

// Once sends a command at most once, and returns its reply. A notSent error means that the command was not sent.
func (c Conn) Once(ctx context.Context, client redis.UniversalClient, args ...any) (any, error) {
	cmd := &onceCmd{}
	cmd.Cmd = *redis.NewCmd(ctx, append(cmd.args[:0], args...)...)
	_ = client.Process(ctx, cmd) // the error is that of Result
	got, err := cmd.Result()
	if err != nil && !cmd.written.Load() {
		err = NotSent(err)
	}
	return got, err
}

// Master returns the client of the node that has a key.
func (c Conn) Master(ctx context.Context, key string) (redis.UniversalClient, error) {
	switch client := c.Client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Ring:
		return client.GetShardClientForKey(key)
	default:
		return client, nil
	}
}

// Node returns the client of the node of a cluster or ring that has a key, nil if there is one node only or none is known; and how
// many commands that node has under way at most, as each takes a connection of the pool.
func (c Conn) Node(ctx context.Context, key string) (node *redis.Client, room int64) {
	switch client := c.Client.(type) {
	case *redis.Client:
		return nil, int64(client.Options().PoolSize)
	case *redis.ClusterClient, *redis.Ring:
		if found, err := c.Master(ctx, key); err == nil {
			node, _ = found.(*redis.Client)
		}
	}
	if node == nil {
		return nil, math.MaxInt64
	}
	return node, int64(node.Options().PoolSize)
}

// resendsMax is how often a call is sent again that Redis refused without beginning it.
const resendsMax = 3

// tryAgainAfter is the pause after TRYAGAIN, while slots move.
const tryAgainAfter = time.Millisecond

// argsMax is the arguments of a call: its name, the script, the number of keys, two keys, the rules and the request.
const argsMax = 7

// Decide calls the script for one key, or for a key and the key of its debt. What Redis refused without beginning it
// is sent again, at most three times; nothing else is. MOVED and ASK are followed by the client library.
func (c Conn) Decide(ctx context.Context, keys []string, rules, request any) (string, error) {
	args := append(make([]any, 0, argsMax), "evalsha", scriptSHA(), len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, rules, request)
	for tries := 0; ; tries++ {
		got, err := c.Once(ctx, c.Client, args...)
		if err == nil {
			return stringReply(got)
		}
		name := ErrorName(err)
		if tries == resendsMax || name != "NOSCRIPT" && name != "TRYAGAIN" {
			return "", err
		}
		if name == "TRYAGAIN" {
			if err := Sleep(ctx, tryAgainAfter); err != nil {
				return "", NotSent(err)
			}
			continue
		}
		if err := c.Load(ctx, keys[0], tries > 0); err != nil {
			return "", NotSent(err)
		}
	}
}

// Load sends the script to the master of a key. everywhere: to all masters of a cluster, as one of them answers for the
// key whose slot is on its way to it.
func (c Conn) Load(ctx context.Context, key string, everywhere bool) error {
	if cluster, ok := c.Client.(*redis.ClusterClient); ok && everywhere {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			_, err := c.Once(ctx, node, "script", "load", Script)
			return err
		})
	}
	node, err := c.Master(ctx, key)
	if err == nil {
		_, err = c.Once(ctx, node, "script", "load", Script)
	}
	return err
}

// ErrNoString is the error of a reply that cannot be one of the script.
var ErrNoString = errors.New("the reply is not a string")

func stringReply(got any) (string, error) {
	if s, ok := got.(string); ok {
		return s, nil
	}
	return "", ErrNoString
}

// RulesAt reads rules that another program put there; nil if there are none.
func (c Conn) RulesAt(ctx context.Context, key string) ([]byte, error) {
	got, err := c.Once(ctx, c.Client, "get", key)
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := stringReply(got)
	return []byte(s), err
}

// Sleep waits for d, or returns the error of the context if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notSentError is an error of something before the call itself, which was not executed then.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// NotSent marks the error of something before a call.
func NotSent(err error) error { return notSentError{err} }

// Class is what a request to Redis came to, if to no decision.
type Class int

const (
	ClassNoAnswer   Class = iota + 1 // Redis does not answer
	ClassContended                   // Redis answers, but came to no decision
	ClassOverloaded                  // Redis answers others, but not this request in time
	ClassThisKey                     // Redis cannot decide this key; others are not affected
	ClassCaller                      // a mistake of the caller's, or a caller that went away
)

// Failure is why a request got no decision.
type Failure struct {
	Class   Class
	Charged bool // perhaps charged
	Cause   error
}

func (f *Failure) Error() string { return f.Cause.Error() }

// ErrUnsupported is the cause of a failure of rules that do not support a verb.
var ErrUnsupported = errors.New("unsupported verb")

// notExecutedErrors are errors of Redis that mean that it did not execute a call, and does not serve.
var notExecutedErrors = map[string]bool{
	"NOSCRIPT": true, "MOVED": true, "ASK": true, "TRYAGAIN": true, "CLUSTERDOWN": true, "CROSSSLOT": true,
	"LOADING": true, "MASTERDOWN": true, "BUSY": true, "NOAUTH": true, "READONLY": true, "NOREPLICAS": true,
	"MISCONF": true, "NOPERM": true, "OOM": true,
}

// ErrorName returns the name of an error of Redis, also where its place in the script stands before it; "" if Redis did
// not send one.
func ErrorName(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	message := reply.Error()
	// Redis before 7 wraps the error of a command in a script, once or twice.
	if strings.HasPrefix(message, "@user_script:") || strings.HasPrefix(message, "ERR Error running script") {
		if _, after, ok := strings.Cut(message, ": -"); ok {
			message = after
		}
	}
	name, _, _ := strings.Cut(message, " ")
	return name
}

// NotRedis reports whether an error is an answer in another protocol. The client library has no type for it.
func NotRedis(err error) bool {
	text := err.Error()
	return strings.Contains(text, "redis: can't parse ") || strings.Contains(text, "redis: invalid reply: ") || errors.Is(err, ErrNoString)
}

// ClassOf returns the class of an error of a call. The context of the caller tells whether the caller went away.
func ClassOf(err error) *Failure {
	var early notSentError
	switch name := ErrorName(err); name {
	case "":
		return &Failure{ClassNoAnswer, !errors.As(err, &early), err}
	case "WRONGTYPE":
		return &Failure{ClassThisKey, false, err}
	default:
		return &Failure{ClassNoAnswer, !notExecutedErrors[name] && !errors.As(err, &early), err}
	}
}
