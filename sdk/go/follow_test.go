package sluicegate

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestPoliciesAreFollowedAsTheVectorsSay plays the lives of spec/vectors/redis-policies.json: it writes the hash as they
// say that servers did, and looks.
func TestPoliciesAreFollowedAsTheVectorsSay(t *testing.T) {
	client := dial(t, redisAddr(t))
	ctx := context.Background()
	text, err := os.ReadFile(specDir + "/vectors/redis-policies.json")
	if err != nil {
		t.Fatal(err)
	}
	var lives []struct {
		Name  string `json:"name"`
		Steps []struct {
			Op      string                     `json:"op"`
			Hash    map[string]json.RawMessage `json:"hash"`
			Message string                     `json:"message"`
			Holds   struct {
				Revision *int64           `json:"revision"`
				Policies map[string]int64 `json:"policies"`
			} `json:"holds"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(text, &lives); err != nil {
		t.Fatal(err)
	}
	for _, life := range lives {
		t.Run(life.Name, func(t *testing.T) {
			client.Del(ctx, policiesKey)
			f := newFollower(newPolicies(nil, slog.New(slog.DiscardHandler), time.Now), redisConn{client})
			for place, step := range life.Steps {
				switch step.Op {
				case "found", "publish":
					client.Del(ctx, policiesKey)
					for name, raw := range step.Hash {
						value := string(raw)
						if name[0] == '#' {
							_ = json.Unmarshal(raw, &value)
						}
						client.HSet(ctx, policiesKey, name, value)
					}
					continue
				case "look":
					if err := f.look(ctx, false); err != nil {
						t.Fatal(err)
					}
				case "hear":
					// What the message does to a follower that runs.
					if n, err := strconv.ParseInt(step.Message, 10, 64); err == nil && n != f.revision {
						if err := f.look(ctx, true); err != nil {
							t.Fatal(err)
						}
					}
				}
				want := int64(-1)
				if step.Holds.Revision != nil {
					want = *step.Holds.Revision
				}
				ok := f.revision == want && len(f.held) == len(step.Holds.Policies)
				for name, version := range step.Holds.Policies {
					ok = ok && f.held[name] != nil && f.held[name].version == version
				}
				if !ok {
					t.Fatalf("step %d: revision %d of %v, expected %+v", place, f.revision, f.held, step.Holds)
				}
			}
		})
	}
}

// publish writes a policy `a` of these rules as a server does.
func publish(t *testing.T, addr string, revision int64, rules ...Rule) {
	t.Helper()
	publishRecords(t, addr, revision, map[string]string{"a": recordOf(t, revision, rules...)})
}

// publishRecords writes the records of policies as a server does.
func publishRecords(t *testing.T, addr string, revision int64, records map[string]string) {
	t.Helper()
	client := dial(t, addr)
	fields := map[string]any{"#format": "1", "#revision": revision, "#clock": "server"}
	for name, record := range records {
		fields[name] = record
	}
	pipe := client.TxPipeline()
	pipe.Del(context.Background(), policiesKey)
	pipe.HSet(context.Background(), policiesKey, fields)
	pipe.Publish(context.Background(), policiesChannel, revision)
	if _, err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// together calls f in n goroutines at a time, and waits for all.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() { defer all.Done(); f(i) }()
	}
	all.Wait()
}

// eventually waits for something.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 4000 { // 20 s: nothing takes so long on a quiet machine
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal(what)
}

func TestAPolicyThatIsEditedHoldsAtOnce(t *testing.T) {
	addr := redisAddr(t)
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate := direct(t, addr)
	limiter := gate.Policy("a")
	d, err := limiter.Allow(context.Background(), "k")
	if err != nil || d.Limit != 5 || d.Remaining != 4 || d.Mode != ModeStore {
		t.Fatal(d, err)
	}
	publish(t, addr, 2, FixedWindow(9, time.Hour))
	eventually(t, "the edit did not come", func() bool {
		d, err = limiter.Peek(context.Background(), "k", 1)
		return err == nil && d.Limit == 9
	})
	if d.Remaining != 8 {
		t.Errorf("usage was not taken over: %+v", d)
	}
}

func TestTheLaterVersionDecides(t *testing.T) {
	client := dial(t, redisAddr(t))
	ctx := context.Background()
	store := newRedisStore(redisConn{client}, time.Second, time.Now, func() clock { return clockServer })
	old := planOf(t, 1000, FixedWindow(5, time.Hour))
	edited := planOf(t, 2000, PerHour(3))
	check := func(p *plan) answer {
		t.Helper()
		a, f := store.ask(ctx, question{plan: p, key: stateKey("a", "k"), request: request{verb: verbCheck, cost: 1}})
		if f != nil {
			t.Fatal(f)
		}
		return a
	}
	if a := check(old); !a.allowed || a.remaining != 4 {
		t.Fatalf("%+v", a)
	}
	if a := check(edited); !a.allowed || a.set.rules[0].limit() != 3 {
		t.Fatalf("%+v", a)
	}
	// Another process that knows the later rules from Redis only.
	store = newRedisStore(redisConn{client}, time.Second, time.Now, func() clock { return clockServer })
	left := int64(0)
	for range 10 {
		if a := check(old); a.set.rules[0].limit() != 3 {
			t.Fatalf("the older rules decided: %+v", a)
		} else if a.allowed {
			left++
		}
	}
	if left > 2 {
		t.Errorf("%d more passed, of a limit of 3", left)
	}
}

func TestAVersionIsTakenOverWhenAServerDid(t *testing.T) {
	const own = 5_000
	held := func(version, instant int64) *policy { return &policy{version: version, instantMS: instant} }
	for _, c := range []struct {
		since  any
		before *policy
		want   int64
	}{
		{json.Number("1767225607000"), nil, 7_000},
		{json.Number("1767225607000"), held(1, 6_000), 7_000},
		{json.Number("1767225607000"), held(1, 7_000), 7_001}, // another version comes after the one before
		{json.Number("1767225607000"), held(2, 9_000), 9_000}, // the same one keeps its instant
		{json.Number("1767225607000"), held(2, 6_000), 6_000},
		{json.Number("0"), nil, 0},
		{json.Number("9007199254740991"), nil, instantMaxMS},
		{json.Number("9007199254740991"), held(1, instantMaxMS), instantMaxMS},
		{nil, nil, own},
		{nil, held(1, 9_000), 9_001},
		{nil, held(2, 9_000), 9_000},
		{json.Number("9007199254740992"), nil, own},
		{json.Number("-1"), nil, own},
		{json.Number("7.5"), nil, own},
		{"1767225607000", nil, own},
		{json.RawMessage("null"), nil, own},
		{json.Number("99999999999999999999"), nil, own},
	} {
		p, err := readRecord("a", recordWith(t, "window", map[string]any{"version": 2, "since_ms": c.since}), c.before, own)
		if err != nil {
			t.Fatal(err)
		}
		if head := readInt(p.plan.head[generationLen:]); p.instantMS != c.want || head != c.want {
			t.Errorf("%v after %+v: %d, %d in the head, expected %d", c.since, c.before, p.instantMS, head, c.want)
		}
	}
}

// ahead is a clock that is an hour ahead of that of the machine.
type ahead struct{ wallClock }

func (ahead) Now() time.Time { return time.Now().Add(time.Hour) }

func TestAProgramThatStartsLateWithAnEarlierVersionLeavesTheDecisionToTheLaterOne(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	client, now := dial(t, addr), time.Now().UnixMilli()
	version := func(n, since, limit int64) {
		t.Helper()
		changed := rulesOf(ruleSetOf(t, FixedWindow(limit, time.Hour)))
		changed["version"], changed["since_ms"] = n, since
		text := recordWith(t, "window", changed)
		if err := client.HSet(ctx, policiesKey, "#format", "1", "#revision", n, "#clock", "server", "a", text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	version(2, now+2_000, 9)
	if d, err := direct(t, addr).Policy("a").Allow(ctx, "k"); err != nil || d.Limit != 9 || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
	version(1, now, 5)
	late := direct(t, addr, WithClock(ahead{})).Policy("a")
	if d, err := late.Allow(ctx, "k"); err != nil || d.Limit != 9 || d.Remaining != 7 || d.Mode != ModeStore {
		t.Errorf("the earlier version decided: %+v, %v", d, err)
	}
	if d, err := late.Allow(ctx, "other"); err != nil || d.Limit != 5 || d.Mode != ModeStore {
		t.Errorf("a key that no later version wrote: %+v, %v", d, err)
	}
}

func TestAConfirmedSubscriptionLooksOnceMore(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate, client := direct(t, addr), dial(t, addr)
	held := func() int64 {
		p := gate.decider.(engineDecider).e.policies
		p.mu.RLock()
		defer p.mu.RUnlock()
		return p.revision
	}
	eventually(t, "the program does not subscribe", func() bool {
		listeners, err := client.PubSubNumSub(ctx, policiesChannel).Result()
		return err == nil && listeners[policiesChannel] == 1
	})
	// Nobody says this on the channel.
	if err := client.HSet(ctx, policiesKey, "#revision", 2).Err(); err != nil || held() == 2 {
		t.Fatal(err, held())
	}
	if err := client.Do(ctx, "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program does not look", func() bool { return held() == 2 })
}
