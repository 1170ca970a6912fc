// A worker that waits for its turn: all workers on one Redis together send so many mails a second.
//
//	REDIS=localhost:6379 go run ./examples/worker
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"
	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	gate, err := sluicegate.Direct(rdb, sluicegate.App("mailer"))
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	mails := []string{"alice", "bob", "carol"}
	if err := work(ctx, gate, mails, func(to string) { log.Print("mail to ", to) }); err != nil {
		log.Print(err)
	}
}

// work sends mails, ten a second, and waits for the turn of each for a minute at most.
func work(ctx context.Context, gate *sluicegate.Gate, mails []string, send func(to string)) error {
	limit, err := gate.Limit("mails", sluicegate.PerSecond(10).Burst(1))
	if err != nil {
		return err
	}
	for _, to := range mails {
		turn, cancel := context.WithTimeout(ctx, time.Minute)
		err := limit.Shared().Wait(turn, "")
		cancel()
		switch {
		case errors.Is(err, sluicegate.ErrLimited):
			log.Printf("no mail to %s: %v", to, err)
		case err != nil:
			return err
		default:
			send(to)
		}
	}
	return nil
}
