// A limit made in code, decided in the memory of the process: no server and no Redis.
//
//	go run ./examples/standalone
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

func main() {
	gate, err := sluicegate.InMemory()
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	if err := logins(context.Background(), gate, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// logins tries five logins, of which three pass in a minute and a hundred in a day.
func logins(ctx context.Context, gate *sluicegate.Gate, out io.Writer) error {
	limit, err := gate.Limit("logins",
		sluicegate.PerMinute(3).Named("minute"),
		sluicegate.CalendarWindow(100, sluicegate.Day, "Europe/Berlin").Named("day"))
	if err != nil {
		return err
	}
	for try := 1; try <= 5; try++ {
		d, err := limit.Allow(ctx, "alice")
		if err != nil {
			return err
		}
		if !d.Allowed {
			fmt.Fprintf(out, "login %d: refused by `%s`\n", try, d.Rule)
			continue
		}
		fmt.Fprintf(out, "login %d: passed, %d left\n", try, d.Remaining)
	}
	return nil
}
