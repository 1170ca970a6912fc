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
	d, err := gate.Policy("orders").Allow(context.Background(), "alice")
	switch {
	case err != nil:
		fmt.Println("no decision:", err)
	case !d.Allowed:
		fmt.Println("refused by", d.Rule, "for", d.RetryAfter)
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
