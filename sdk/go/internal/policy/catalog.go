package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/notice"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	PoliciesKey     = "sg:{policies}"
	PoliciesChannel = "sg:policies"
	// lookEvery is how often a program looks for policies, each time up to a tenth sooner or later.
	lookEvery = 10 * time.Second
	// lookAgainAfter is how long a policy that was not found is not looked for again.
	lookAgainAfter = 100 * time.Millisecond
	// lookWithin bounds a look, which may bring ten thousand policies along.
	lookWithin = 2 * time.Second
	// LookFirstWithin bounds the look with which a program starts, and so how long it starts without Redis.
	LookFirstWithin = time.Second
)

// Catalog has the policies that this process holds.
type Catalog struct {
	names []string // empty: all
	now   func() time.Time

	mu         sync.RWMutex
	held       map[string]*Policy
	texts      map[string]string // of what is held
	unreadable map[string]string // why, of those published that cannot be read
	revision   int64             // -1: none
	behind     bool              // the last look found an earlier revision
	clock      wire.Clock
	nodes      int64 // 0: not known
	found      Found
}

// Found is what the last look that was answered found.
type Found int

// The findings of a look.
const (
	FoundNoAnswer Found = iota // none was answered yet
	FoundNothing               // no hash of policies
	FoundFormat                // policies in a format that is not known
	FoundPolicies
)

// NewCatalog returns a catalog that holds nothing yet, of the policies with these names; none: of all.
func NewCatalog(names []string, now func() time.Time) *Catalog {
	return &Catalog{names: names, now: now, held: map[string]*Policy{}, texts: map[string]string{},
		unreadable: map[string]string{}, revision: -1}
}

// Get returns the policy that is held under a name, and why the published one cannot be read.
func (c *Catalog) Get(name string) (*Policy, string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.held[name], c.unreadable[name]
}

// Hold adds a policy, or replaces the one of its name.
func (c *Catalog) Hold(added *Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[added.Name] = added
}

// ErrFormat means that policies are published in a format that this program does not read.
var ErrFormat = errors.New("the policies in Redis have a format of a later version; this program reads " + recordsFormat)

// State returns how many policies are held, and what the last look found.
func (c *Catalog) State() (held int, found Found) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.held), c.found
}

// Unreadable returns the name of a policy that is published and cannot be read, and why; "" if there is none.
func (c *Catalog) Unreadable() (name, reason string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for other, otherReason := range c.unreadable {
		if name == "" || other < name {
			name, reason = other, otherReason
		}
	}
	return name, reason
}

// ClockNow returns by whose time Redis decides.
func (c *Catalog) ClockNow() wire.Clock {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.clock
}

// NodesNow returns the number of nodes that servers publish; 0 if they publish none.
func (c *Catalog) NodesNow() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.nodes
}

// Take takes over what a look found, or a message made this process read (fromMessage). No fields: there is no hash.
func (c *Catalog) Take(fields map[string]string, fromMessage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.behind
	if !fromMessage {
		c.behind = false
	}
	revision, rest, ok := lex.Digits(fields["#revision"])
	if !ok || rest != "" || revision >= kernel.UnitsMax {
		c.found = FoundNothing
		return
	}
	if fields["#format"] != recordsFormat {
		c.found = FoundFormat
		return
	}
	c.found, c.clock = FoundPolicies, wire.ClockServer
	if fields["#clock"] == "client" {
		c.clock = wire.ClockClient
	}
	c.nodes, _, _ = lex.Digits(fields["#nodes"])
	switch {
	case revision == c.revision:
		return
	case revision < c.revision && (fromMessage || !before):
		c.behind = !fromMessage || c.behind
		return
	}
	c.replace(revision, fields)
}

// replace takes a revision over. A damaged record leaves the version that is held; a record of a later version drops it.
func (c *Catalog) replace(revision int64, fields map[string]string) {
	held, texts, unreadable := map[string]*Policy{}, map[string]string{}, map[string]string{}
	for name, text := range fields {
		if strings.Contains(name, "#") {
			continue
		}
		before := c.held[name]
		if before != nil && c.texts[name] == text {
			held[name], texts[name] = before, text
			continue
		}
		read, err := Read(name, text, before, wire.InstantOf(c.now()))
		if err == nil {
			held[name], texts[name] = read, text
			continue
		}
		unreadable[name] = err.Error()
		if later := kernel.LaterError(""); before != nil && !errors.As(err, &later) {
			held[name], texts[name] = before, c.texts[name]
		}
	}
	c.held, c.texts, c.unreadable, c.revision, c.behind = held, texts, unreadable, revision, false
}

// Follower looks for policies in Redis.
type Follower struct {
	*Catalog
	Notices  *notice.Log
	OnLook   func(error) // is called after each look; nil: nothing is
	conn     wire.Conn
	lock     chan struct{} // one look at a time
	mu       sync.Mutex
	lookedAt time.Time // the last look for a policy that is not held
	failed   error     // why the last look failed
	answered bool      // whether a look ever had an answer
}

// NewFollower returns what fills a catalog from Redis.
func NewFollower(p *Catalog, conn wire.Conn) *Follower {
	return &Follower{Catalog: p, conn: conn, lock: make(chan struct{}, 1)}
}

// Look reads what is published. The policies come along only if their revision is not the one that is held.
func (f *Follower) Look(ctx context.Context, fromMessage bool) error {
	select {
	case f.lock <- struct{}{}:
		defer func() { <-f.lock }()
	case <-ctx.Done():
		return wire.NotSent(ctx.Err())
	}
	err := f.read(ctx, fromMessage)
	f.mu.Lock()
	f.answered = f.answered || err == nil
	err = explain(err, f.answered || f.conn.HasTLS())
	f.mu.Unlock()
	if f.OnLook != nil {
		f.OnLook(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !errors.Is(err, context.Canceled) { // that is about one caller only
		f.failed = err
	}
	return err
}

// explain adds what an error of the client library leaves to guess: that something else than a Redis answers, or, at the first
// connections, that the port perhaps expects TLS.
func explain(err error, knowsTLS bool) error {
	switch {
	case err == nil:
		return nil
	case wire.NotRedis(err):
		return fmt.Errorf("what answers is not redis: %w", err)
	case !knowsTLS && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("the connection was closed without a reply, as by a port that expects TLS: %w", err)
	default:
		return err
	}
}

func (f *Follower) read(ctx context.Context, fromMessage bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	node, err := f.conn.Master(ctx, PoliciesKey)
	if err != nil {
		return err
	}
	names := append([]string{"#format", "#revision", "#clock", "#nodes"}, f.names...)
	args := []any{"hmget", PoliciesKey}
	for _, name := range names {
		args = append(args, name)
	}
	got, err := f.conn.Once(ctx, node, args...)
	if err != nil {
		return err
	}
	fields := map[string]string{}
	list, _ := got.([]any)
	for i, v := range list {
		if s, ok := v.(string); ok && i < len(names) {
			fields[names[i]] = s
		}
	}
	f.Catalog.mu.RLock()
	held := strconv.FormatInt(f.revision, 10)
	f.Catalog.mu.RUnlock()
	if len(f.names) == 0 && fields["#format"] == recordsFormat && fields["#revision"] != held {
		all, err := node.HGetAll(ctx, PoliciesKey).Result()
		if err != nil {
			return err
		}
		fields = all
	}
	f.Take(fields, fromMessage)
	return nil
}

// LookFor looks again for policies, as a request needs one that is not held; but not more often than every 100 ms, and
// within the deadline of the request.
func (f *Follower) LookFor(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	f.mu.Lock()
	soon := time.Since(f.lookedAt) < lookAgainAfter
	if !soon {
		f.lookedAt = time.Now()
	}
	failed := f.failed
	f.mu.Unlock()
	if soon {
		return failed
	}
	return f.Look(ctx, false)
}

// Run follows until the context ends.
func (f *Follower) Run(ctx context.Context) {
	messages := f.conn.Client.Subscribe(ctx, PoliciesChannel)
	defer messages.Close()
	channel := messages.ChannelWithSubscriptions()
	timer := time.NewTimer(jittered(lookEvery))
	defer timer.Stop()
	for {
		fromMessage := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(jittered(lookEvery))
		case message, ok := <-channel:
			if !ok {
				channel = nil // closed with the client; looks go on
				continue
			}
			if fromMessage = true; !f.isReasonToLook(message) {
				continue
			}
		}
		err := f.Look(ctx, fromMessage)
		if ctx.Err() == nil {
			f.Report(err)
		}
	}
}

// Report logs what a look came to.
func (f *Follower) Report(err error) {
	held, found := f.State()
	meanwhile := "the policies that are held"
	if held == 0 {
		meanwhile = "nothing: requests under policies get errors"
	}
	if err != nil {
		f.Notices.Warn("look", notice.KindOf(err), "policies cannot be looked for in redis",
			"address", f.conn.Address(), "error", lex.Truncate(err.Error()), "meanwhile", meanwhile)
		return
	}
	f.Notices.Recovered("look", "policies are followed in redis again", "address", f.conn.Address())
	switch {
	case found == FoundPolicies:
		f.Notices.Recovered("published", "policies are published in redis again", "address", f.conn.Address())
		f.reportUnreadable()
	case found == FoundFormat:
		f.Notices.Warn("published", "format", ErrFormat.Error(), "address", f.conn.Address(), "meanwhile", meanwhile)
	case held > 0: // where none were ever published, perhaps none are needed: a request reports it
		f.Notices.Warn("published", "nothing", "no policies are published in redis any more", "address", f.conn.Address(), "meanwhile", meanwhile)
	}
}

// reportUnreadable logs the policies that cannot be read, or that all can be again.
func (f *Follower) reportUnreadable() {
	f.Catalog.mu.RLock()
	unreadable := maps.Clone(f.unreadable)
	f.Catalog.mu.RUnlock()
	if len(unreadable) == 0 {
		f.Notices.Recovered("unreadable", "policies can be read again", "address", f.conn.Address())
	}
	for name, reason := range unreadable {
		meanwhile := "nothing: requests under it get errors"
		if before, _ := f.Get(name); before != nil {
			meanwhile = "the version before"
		}
		f.Notices.Warn("unreadable", name+" "+reason, "a published policy cannot be read",
			"address", f.conn.Address(), "policy", name, "error", lex.Truncate(reason), "meanwhile", meanwhile)
	}
}

// isReasonToLook reports whether a message is a reason to look: another revision, any revision where the last look found none that
// it reads (a Redis that came back empty gets the same one again), or a subscription that is confirmed, for what was published before
// it was missed.
func (f *Follower) isReasonToLook(message any) bool {
	published, ok := message.(*redis.Message)
	if !ok {
		confirmed, ok := message.(*redis.Subscription)
		return ok && confirmed.Kind == "subscribe"
	}
	revision, rest, ok := lex.Digits(published.Payload)
	f.Catalog.mu.RLock()
	defer f.Catalog.mu.RUnlock()
	return ok && rest == "" && (revision != f.revision || f.found != FoundPolicies)
}

// jittered returns a time up to a tenth shorter or longer.
func jittered(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
