package sluicegate

import (
	"context"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

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
	pipe.Del(context.Background(), policy.PoliciesKey)
	pipe.HSet(context.Background(), policy.PoliciesKey, fields)
	pipe.Publish(context.Background(), policy.PoliciesChannel, revision)
	if _, err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
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

// ahead is a clock that is an hour ahead of that of the machine.
type ahead struct{ engine.WallClock }

func (ahead) Now() time.Time { return time.Now().Add(time.Hour) }

func TestAProgramThatStartsLateWithAnEarlierVersionLeavesTheDecisionToTheLaterOne(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	client, now := dial(t, addr), time.Now().UnixMilli()
	version := func(n, since, limit int64) {
		t.Helper()
		changed := rulesOf(ruleSetOf(t, FixedWindow(limit, time.Hour)))
		changed["version"], changed["since_ms"] = n, since
		text := recordWith(t, "window", changed)
		if err := client.HSet(ctx, policy.PoliciesKey, "#format", "1", "#revision", n, "#clock", "server", "a", text).Err(); err != nil {
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
	limit := func() int64 {
		d, err := gate.Policy("a").Peek(ctx, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Limit
	}
	eventually(t, "the program does not subscribe", func() bool {
		listeners, err := client.PubSubNumSub(ctx, policy.PoliciesChannel).Result()
		return err == nil && listeners[policy.PoliciesChannel] == 1
	})
	// This change is not announced on the channel.
	if err := client.HSet(ctx, policy.PoliciesKey, "#revision", 2, "a", recordOf(t, 2, FixedWindow(9, time.Hour))).Err(); err != nil || limit() != 5 {
		t.Fatal(err, limit())
	}
	if err := client.Do(ctx, "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program does not look", func() bool { return limit() == 9 })
}
