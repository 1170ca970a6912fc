package sluicegate

import (
	"encoding/json"
	"os"
	"testing"
)

func TestErrorsHaveTheNamesOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile(specDir + "/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Name string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, e := range []*Error{
		ErrUnknownPolicy, ErrPolicyNotAvailable, ErrAppMissing, ErrAppName, ErrKeyEmpty, ErrKeyLength, ErrIDLength,
		ErrCostRange, ErrMaxWaitRange, ErrNodesRange, ErrDeadlineRange, ErrUnsupportedVerb, ErrNotInDirectMode,
		ErrKeyText, ErrNotOnThisWire, ErrInterrupted, ErrNotCharged, ErrPerhapsCharged, ErrUnreadablePolicy, ErrRules, ErrServer,
	} {
		own[e.Name] = true
	}
	for _, e := range listed {
		if !own[e.Name] {
			t.Errorf("%s is missing", e.Name)
		}
		delete(own, e.Name)
	}
	for name := range own {
		t.Errorf("%s is not in the specification", name)
	}
}
