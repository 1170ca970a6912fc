package main

import (
	"context"
	"strings"
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

func TestThreeLoginsPass(t *testing.T) {
	var out strings.Builder
	if err := logins(context.Background(), sgtest.NewGate(t).Gate, &out); err != nil {
		t.Fatal(err)
	}
	const want = "login 1: passed, 2 left\nlogin 2: passed, 1 left\nlogin 3: passed, 0 left\n" +
		"login 4: refused by `minute`\nlogin 5: refused by `minute`\n"
	if out.String() != want {
		t.Errorf("%s, expected %s", out.String(), want)
	}
}
