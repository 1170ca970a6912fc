package sluicegate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

func TestARedisInWhichNothingIsPublishedIsNoUnknownPolicy(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	for name, gate := range map[string]*Gate{"all": direct(t, addr), "some": direct(t, addr, Policies("orders"))} {
		_, err := gate.Policy("orders").Allow(ctx, "k")
		want := "policy: no policies are published in the Redis at " + addr + "; start a server on it (its `store.publish` is `true` unless set)"
		if !errors.Is(err, ErrNothingPublished) || errors.Is(err, ErrUnknownPolicy) || err.Error() != want {
			t.Errorf("%s: %v, expected %s", name, err, want)
		}
	}
	// As soon as there is one policy, another is unknown.
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate := direct(t, addr)
	if _, err := gate.Policy("orders").Allow(ctx, "k"); !errors.Is(err, ErrUnknownPolicy) {
		t.Error(err)
	}
}

func TestWhatIsPublishedLaterIsFound(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	a := direct(t, addr).Policy("a")
	if _, err := a.Allow(ctx, "k"); !errors.Is(err, ErrNothingPublished) {
		t.Fatal(err)
	}
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	eventually(t, "the policy is not found", func() bool {
		d, err := a.Allow(ctx, "k")
		return err == nil && d.Mode == ModeStore
	})
}

func TestPoliciesThatAreHeldStayWhenRedisComesBackEmpty(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(5, time.Hour))
	gate := direct(t, addr)
	if d, err := gate.Policy("a").Allow(ctx, "k"); err != nil || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := dial(t, addr).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	// This one is not held, so the program looks again.
	if _, err := gate.Policy("b").Allow(ctx, "k"); !errors.Is(err, ErrUnknownPolicy) {
		t.Error(err)
	}
	if d, err := gate.Policy("a").Allow(ctx, "k"); err != nil || d.Mode != ModeStore || d.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestPoliciesOfAFormatThatIsNotKnownAreNotUnknown(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	if err := dial(t, addr).HSet(ctx, policy.PoliciesKey, "#format", "2", "#revision", "1", "a", "{}").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := direct(t, addr).Policy("a").Allow(ctx, "k")
	if !errors.Is(err, ErrUnreadablePolicy) || !strings.Contains(err.Error(), "this program reads 1") {
		t.Error(err)
	}
}
