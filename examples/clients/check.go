// Asks over HTTP by net/http. Read the body to its end, so that the connection is used again.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

type decision struct {
	Allowed      bool   `json:"allowed"`
	Remaining    uint64 `json:"remaining"`
	RetryAfterUs *int64 `json:"retry_after_us"` // nil: it never can pass
	Detail       string `json:"detail"`         // of a problem
}

var client = &http.Client{Timeout: time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func check(policy, key string) (decision, error) {
	var d decision
	body, err := json.Marshal(map[string]any{"policy": policy, "key": key})
	if err != nil {
		return d, err
	}
	answer, err := client.Post(os.Getenv("SLUICEGATE_URL")+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return d, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&d); err != nil {
		return d, err
	}
	if answer.StatusCode != http.StatusOK {
		return d, fmt.Errorf("%s", d.Detail)
	}
	return d, nil
}

func main() {
	passed := 0
	for range 6 {
		d, err := check("login", "go")
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			passed++
		}
	}
	fmt.Println(passed, "of 6 passed")
}
