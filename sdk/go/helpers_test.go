package sluicegate

import (
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

const patient = testkit.Patient

var (
	redisServer, startRedis, redisAddr, freeAddr = testkit.RedisServer, testkit.StartRedis, testkit.RedisAddr, testkit.FreeAddr
	dial, together, eventually, skipOrFail, long = testkit.Dial, testkit.Together, testkit.Eventually, testkit.SkipOrFail, testkit.Long
	compiledPolicies, recordWith, rulesOf        = testkit.CompiledPolicies, testkit.RecordWith, testkit.RulesOf
	newManual, serverProgram, newSlowRelay       = testkit.NewManual, testkit.ServerProgram, testkit.NewSlowRelay
)

type (
	manual    = testkit.Manual
	slowRelay = testkit.SlowRelay
)

func TestMain(m *testing.M) { testkit.Main(m) }

// recordOf returns the record of a version of a policy of the app `shop` that has these rules.
func recordOf(t testing.TB, version int64, rules ...Rule) string {
	t.Helper()
	changed := rulesOf(ruleSetOf(t, rules...))
	changed["version"], changed["app"] = version, "shop"
	return recordWith(t, "window", changed)
}

// onFailure returns a limiter with another failure mode.
func onFailure(t testing.TB, l *Limiter, mode FailureMode) *Limiter {
	t.Helper()
	l, err := l.OnStoreFailure(mode)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ruleSetOf compiles rules for a test.
func ruleSetOf(t testing.TB, rules ...Rule) *kernel.RuleSet {
	t.Helper()
	set, err := kernel.CompileRules(specsOf(rules), "")
	if err != nil {
		t.Fatal(err)
	}
	return set
}
