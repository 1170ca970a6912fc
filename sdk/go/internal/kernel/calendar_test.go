package kernel_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/testkit"
)

func TestCalendarsAreThoseOfTheWire(t *testing.T) {
	for _, e := range testkit.LoadWire[struct {
		Unit, Zone string
		Now        int64 `json:"now_us"`
		Start      int64 `json:"start_us"`
		End        int64 `json:"end_us"`
	}](t, "calendars.json", 440) {
		zone, err := kernel.LoadZone(e.Zone)
		if err != nil {
			t.Errorf("%s: %v", e.Zone, err)
			continue
		}
		for unit, name := range kernel.UnitNames {
			if name != e.Unit {
				continue
			}
			if got := (&kernel.Calendar{Unit: unit, Zone: zone}).Around(e.Now); got != (kernel.Window{From: e.Start, Till: e.End}) {
				t.Errorf("%+v: %v", e, got)
			}
		}
	}
}

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		unit       int
		zone, at   string
		from, till string
	}{
		{kernel.UnitDay, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{kernel.UnitDay, "America/Havana", "2023-11-05T12:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z"},
		{kernel.UnitDay, "Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{kernel.UnitDay, "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{kernel.UnitDay, "america/ST_johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{kernel.UnitWeek, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{kernel.UnitMonth, "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{kernel.UnitYear, "UTC", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"},
		{kernel.UnitYear, "Europe/Berlin", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1970-12-31T23:00:00Z"},
	} {
		zone, err := kernel.LoadZone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		micro := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMicro()
		}
		got, want := (&kernel.Calendar{Unit: c.unit, Zone: zone}).Around(micro(c.at)), kernel.Window{From: micro(c.from), Till: micro(c.till)}
		if got != want {
			t.Errorf("%s at %s: %v to %v, expected %s to %s", c.zone, c.at, time.UnixMicro(got.From).UTC(),
				time.UnixMicro(got.Till).UTC(), c.from, c.till)
		}
	}
}
