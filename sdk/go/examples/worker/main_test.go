package main

import (
	"context"
	"testing"
	"time"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
)

func TestMailsAreSentAtTheRate(t *testing.T) {
	gate, err := sluicegate.InMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	start, sent := time.Now(), 0
	if err := work(context.Background(), gate, make([]string, 4), func(string) { sent++ }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); sent != 4 || took < 290*time.Millisecond {
		t.Errorf("%d mails in %v, expected 4 in 300 ms or more", sent, took)
	}
}
