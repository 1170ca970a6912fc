package sghttp_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
)

func TestKeysOfAttributesAreThoseOfTheWire(t *testing.T) {
	text, err := os.ReadFile("../../../spec/wire/attribute-keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Entries []struct {
			Key     []string
			Made    *string
			Request map[string]any
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Entries) < 12 {
		t.Fatalf("%d entries, expected 12 or more", len(all.Entries))
	}
	for _, e := range all.Entries {
		var values []string
		for _, attribute := range e.Key {
			name, isHeader := strings.CutPrefix(attribute, "header:")
			value, _ := e.Request[attribute].(string)
			headers, _ := e.Request["headers"].(map[string]any)
			for field, text := range headers {
				if isHeader && strings.EqualFold(field, name) {
					value, _ = text.(string)
				}
			}
			values = append(values, value)
		}
		want := ""
		if e.Made != nil {
			want = *e.Made
		}
		if got := sghttp.JoinKey(values...); got != want {
			t.Errorf("%v of %v: `%s`, expected `%s`", e.Key, e.Request, got, want)
		}
	}
}
