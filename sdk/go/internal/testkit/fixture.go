package testkit

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
)

// CompiledPolicies returns testdata/policies.json, the records of testdata/policies.yaml.
func CompiledPolicies(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "testdata/policies.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// RecordWith returns a record of testdata/policies.json with changed members; one that is changed to nil is missing.
func RecordWith(t testing.TB, name string, changed map[string]any) string {
	t.Helper()
	var file map[string]json.RawMessage
	var record map[string]any
	if err := json.Unmarshal([]byte(CompiledPolicies(t)), &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file[name], &record); err != nil {
		t.Fatal(err)
	}
	for member, to := range changed {
		if record[member] = to; to == nil {
			delete(record, member)
		}
	}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// RulesOf returns the members of a record that are its rules.
func RulesOf(set *kernel.RuleSet) map[string]any {
	var each []any
	for _, r := range set.Rules {
		of := map[string]any{"name": r.Name, "limit": r.Limit()}
		if r.WindowUS > 0 {
			of["window_us"] = r.WindowUS
		}
		each = append(each, of)
	}
	return map[string]any{"blob": base64.RawURLEncoding.EncodeToString(set.Bytes()), "life_ms": int64(400 * 24 * 3600 * 1000), "each": each}
}
