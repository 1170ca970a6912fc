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

// said is an error of Redis.
type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

func TestErrorsOfRedisHaveTheirClasses(t *testing.T) {
	const wrapped = "ERR Error running script (call to f_0a): @user_script:8: "
	for _, c := range []struct {
		text    string
		class   class
		charged bool
	}{
		{"WRONGTYPE Operation against a key", classThisKey, false}, {"OOM command not allowed", classNoAnswer, false},
		{"@user_script: 8: -OOM command not allowed", classNoAnswer, false}, {wrapped + "@user_script: 8: -OOM command not allowed", classNoAnswer, false},
		{wrapped + "@user_script: 8: -READONLY You can't write", classNoAnswer, false}, {"READONLY You can't write", classNoAnswer, false},
		{"NOAUTH Authentication required.", classNoAnswer, false}, {"NOPERM this user has no permissions", classNoAnswer, false},
		{"LOADING Redis is loading", classNoAnswer, false}, {"CLUSTERDOWN The cluster is down", classNoAnswer, false},
		{wrapped + "WRONGTYPE Operation against a key", classNoAnswer, true}, {"ERR something", classNoAnswer, true}, {"SOMETHING else", classNoAnswer, true},
	} {
		if f := classOf(said(c.text)); f.class != c.class || f.charged != c.charged {
			t.Errorf("%s: class %d, perhaps charged %v", c.text, f.class, f.charged)
		}
	}
}
