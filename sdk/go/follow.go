package sluicegate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	policiesKey     = "sg:{policies}"
	policiesChannel = "sg:policies"
	// lookEvery is how often a program looks for policies, each time up to a tenth sooner or later.
	lookEvery = 10 * time.Second
	// lookAgainAfter is how long a policy that was not found is not looked for again.
	lookAgainAfter = 100 * time.Millisecond
	// lookWithin bounds a look, which may bring ten thousand policies along.
	lookWithin = 2 * time.Second
	// lookFirstWithin bounds the look with which a program starts, and so how long it starts without Redis.
	lookFirstWithin = time.Second
)

// policies are those that this process holds, and follows where they are published.
type policies struct {
	names  []string // empty: all
	logger *slog.Logger
	now    func() time.Time

	mu         sync.RWMutex
	held       map[string]*policy
	texts      map[string]string // of what is held
	unreadable map[string]string // why, of those published that cannot be read
	revision   int64             // -1: none
	behind     bool              // the last look found an earlier revision
	clock      clock
	nodes      int64 // 0: not said
}

func newPolicies(names []string, logger *slog.Logger, now func() time.Time) *policies {
	return &policies{names: names, logger: logger, now: now, held: map[string]*policy{}, texts: map[string]string{},
		unreadable: map[string]string{}, revision: -1}
}

func (p *policies) get(name string) (*policy, string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.held[name], p.unreadable[name]
}

func (p *policies) clockNow() clock {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.clock
}

func (p *policies) nodesNow() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.nodes
}

// take takes over what a look found, or a message made this process read (heard). No fields: there is no hash.
func (p *policies) take(fields map[string]string, heard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.behind
	if !heard {
		p.behind = false
	}
	revision, rest, ok := digits(fields["#revision"])
	if !ok || rest != "" || revision >= unitsMax {
		return
	}
	if fields["#format"] != recordsFormat {
		p.logger.Warn("policies are published in a format that is not known", "format", fields["#format"])
		return
	}
	p.clock = clockServer
	if fields["#clock"] == "client" {
		p.clock = clockClient
	}
	p.nodes, _, _ = digits(fields["#nodes"])
	switch {
	case revision == p.revision:
		return
	case revision < p.revision && (heard || !before):
		p.behind = !heard || p.behind
		return
	}
	p.replace(revision, fields)
}

// replace takes a revision over. A damaged record leaves the version that is held; a record of a later version drops it.
func (p *policies) replace(revision int64, fields map[string]string) {
	held, texts, unreadable := map[string]*policy{}, map[string]string{}, map[string]string{}
	for name, text := range fields {
		if strings.Contains(name, "#") {
			continue
		}
		before := p.held[name]
		if before != nil && p.texts[name] == text {
			held[name], texts[name] = before, text
			continue
		}
		read, err := readRecord(name, text, before, instantOf(p.now()))
		if err == nil {
			held[name], texts[name] = read, text
			continue
		}
		p.logger.Error("a published policy cannot be read", "policy", name, "error", err)
		unreadable[name] = err.Error()
		if later := laterError(""); before != nil && !errors.As(err, &later) {
			held[name], texts[name] = before, p.texts[name]
		}
	}
	p.held, p.texts, p.unreadable, p.revision, p.behind = held, texts, unreadable, revision, false
}

// follower looks for policies in Redis.
type follower struct {
	*policies
	conn   redisConn
	turn   chan struct{} // one look at a time
	mu     sync.Mutex
	asked  time.Time // the last look for a policy that is not held
	failed error     // why the last look failed
}

func newFollower(p *policies, conn redisConn) *follower {
	return &follower{policies: p, conn: conn, turn: make(chan struct{}, 1)}
}

// look reads what is published. The policies come along only if their revision is not the one that is held.
func (f *follower) look(ctx context.Context, heard bool) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return notSent{ctx.Err()}
	}
	err := f.read(ctx, heard)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	return err
}

func (f *follower) read(ctx context.Context, heard bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	node, err := f.conn.master(ctx, policiesKey)
	if err != nil {
		return err
	}
	names := append([]string{"#format", "#revision", "#clock", "#nodes"}, f.names...)
	args := []any{"hmget", policiesKey}
	for _, name := range names {
		args = append(args, name)
	}
	got, err := f.conn.once(ctx, node, args...)
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
	f.policies.mu.RLock()
	held := strconv.FormatInt(f.revision, 10)
	f.policies.mu.RUnlock()
	if len(f.names) == 0 && fields["#format"] == recordsFormat && fields["#revision"] != held {
		all, err := node.HGetAll(ctx, policiesKey).Result()
		if err != nil {
			return err
		}
		fields = all
	}
	f.take(fields, heard)
	return nil
}

// lookFor looks again for policies, as a request asks for one that is not held; but not more often than every 100 ms, and
// within the deadline of the request.
func (f *follower) lookFor(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	f.mu.Lock()
	soon := time.Since(f.asked) < lookAgainAfter
	if !soon {
		f.asked = time.Now()
	}
	failed := f.failed
	f.mu.Unlock()
	if soon {
		return failed
	}
	return f.look(ctx, false)
}

// run follows until the context ends.
func (f *follower) run(ctx context.Context) {
	messages := f.conn.client.Subscribe(ctx, policiesChannel)
	defer messages.Close()
	channel := messages.ChannelWithSubscriptions()
	timer := time.NewTimer(jittered(lookEvery))
	defer timer.Stop()
	failed := false
	for {
		heard := false
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
			if heard = true; !f.isNews(message) {
				continue
			}
		}
		err := f.look(ctx, heard)
		if (err != nil) != failed && ctx.Err() == nil {
			if failed = err != nil; failed {
				f.logger.Warn("policies cannot be looked for in Redis", "error", err)
			} else {
				f.logger.Info("policies are followed in Redis again")
			}
		}
	}
}

// isNews says whether a message is a reason to look: another revision, or a subscription that is confirmed, for what was
// told before it was not heard.
func (f *follower) isNews(message any) bool {
	said, ok := message.(*redis.Message)
	if !ok {
		confirmed, ok := message.(*redis.Subscription)
		return ok && confirmed.Kind == "subscribe"
	}
	revision, rest, ok := digits(said.Payload)
	f.policies.mu.RLock()
	defer f.policies.mu.RUnlock()
	return ok && rest == "" && revision != f.revision
}

// jittered gives a time up to a tenth shorter or longer.
func jittered(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
