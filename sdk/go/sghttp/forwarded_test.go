package sghttp_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	sluicegate "github.com/sluicegate/sluicegate/sdk/go"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
	"github.com/sluicegate/sluicegate/sdk/go/sghttp"
	"github.com/sluicegate/sluicegate/sdk/go/sgtest"
)

// The table is the same for all SDKs.
func TestTheClientIsTheOneThatTrustedProxiesName(t *testing.T) {
	text, err := os.ReadFile(testkit.SpecDir + "/client-addresses.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Trusted []string
		Cases   []struct {
			Name, Field, Peer, Key string
			Lines                  []string
			Filler                 struct {
				Text  string
				Times int
			}
		}
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.Cases) < 96 {
		t.Fatal(len(table.Cases), err)
	}
	for _, c := range table.Cases {
		t.Run(c.Field+" "+c.Name, func(t *testing.T) {
			var fields []string
			for i, line := range c.Lines {
				if i == 0 {
					line += strings.Repeat(c.Filler.Text, c.Filler.Times)
				}
				fields = append(fields, c.Field, line)
			}
			gate := sgtest.NewGate(t, sluicegate.Rules("orders", sluicegate.PerHour(1)))
			h := sghttp.Middleware(gate.Policy("orders"), sghttp.TrustedProxies(table.Trusted...), sghttp.ProxyHeader(c.Field))(hello)
			peer := netip.AddrPortFrom(netip.MustParseAddr(c.Peer), 4711).String()
			if r := get(h, peer, fields...); r.StatusCode != 200 {
				t.Fatal(r.StatusCode)
			}
			if d, err := gate.Policy("orders").Peek(context.Background(), c.Key, 1); err != nil || d.Allowed {
				t.Errorf("another key than %s was charged (%v)", c.Key, err)
			}
		})
	}
}
