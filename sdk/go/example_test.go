package sluicegate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

func ExampleDirect() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	gate, err := sluicegate.Direct(rdb, sluicegate.App("shop"))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	ctx := context.Background()
	d, err := gate.Policy("orders").Allow(ctx, "alice")
	switch {
	case err != nil:
		fmt.Println("no decision:", err)
	case !d.Allowed:
		fmt.Println("refused by", d.Rule, "for", d.RetryAfter)
	case d.Sleep(ctx) != nil:
		fmt.Println("the context ended before the request could go on")
	default:
		fmt.Println("allowed")
	}
}

func ExampleGate_Limit() {
	gate, err := sluicegate.InMemory()
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	mail, err := gate.Limit("mail", sluicegate.FixedWindow(2, 24*time.Hour))
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := mail.Allow(context.Background(), "alice")
		fmt.Println(d.Allowed, d.Remaining, err, errors.Is(d.Err(), sluicegate.ErrLimited))
	}
	// Output:
	// true 1 <nil> false
	// true 0 <nil> false
	// false 0 <nil> true
}

func ExampleDecision_Sleep() {
	gate, err := sluicegate.InMemory(sluicegate.Rules("mails", sluicegate.LeakyBucket(1000, time.Second).Burst(1)))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	ctx := context.Background()
	for range 2 {
		d, err := gate.Policy("mails").Allow(ctx, "alice")
		if err != nil {
			panic(err)
		}
		if !d.Allowed {
			panic(d.Err())
		}
		if err := d.Sleep(ctx); err != nil { // the second may leave a millisecond after the first
			panic(err)
		}
		fmt.Println("mail")
	}
	// Output:
	// mail
	// mail
}

func ExampleLimiter_Wait() {
	gate, err := sluicegate.InMemory(sluicegate.Rules("mails", sluicegate.PerSecond(100).Burst(1)))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		if err := gate.Policy("mails").Wait(ctx, "alice"); err != nil {
			panic(err) // errors.Is(err, sluicegate.ErrLimited): not within a minute
		}
		fmt.Println("mail")
	}
	// Output:
	// mail
	// mail
}

func ExampleLimiter_Acquire() {
	gate, err := sluicegate.InMemory(sluicegate.Rules("jobs", sluicegate.Concurrency(1, time.Minute)))
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	ctx, jobs := context.Background(), gate.Policy("jobs")
	permit, err := jobs.Acquire(ctx, "acme")
	if err != nil {
		panic(err)
	}
	defer permit.Release(ctx)
	held := permit.Hold(ctx) // the work stops with this context: context.Cause is ErrNotHeld if the permit is lost
	_, err = jobs.Acquire(held, "acme")
	fmt.Println(errors.Is(err, sluicegate.ErrLimited), held.Err())
	// Output: true <nil>
}

func ExampleError() {
	gate, err := sluicegate.InMemory()
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	_, err = gate.Policy("oders").Allow(context.Background(), "alice")
	fmt.Println(errors.Is(err, sluicegate.ErrUnknownPolicy))
	var undecided *sluicegate.Error
	if errors.As(err, &undecided) {
		fmt.Println(undecided.Charged, undecided)
	}
	// Output:
	// true
	// no policy: unknown policy `oders`
}
