package sluicegate

import (
	"testing"
	"time"
)

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		unit       Unit
		zone, at   string
		from, till string
	}{
		{Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{Day, "America/Havana", "2023-11-05T12:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z"},
		{Day, "Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{Day, "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{Day, "america/ST_johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{Week, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{Month, "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{Year, "UTC", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"},
		{Year, "Europe/Berlin", "1970-02-01T12:00:00Z", "1970-01-01T00:00:00Z", "1970-12-31T23:00:00Z"},
	} {
		zone, err := loadZone(c.zone)
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
		got, want := windowAround(c.unit, zone, micro(c.at)), window{micro(c.from), micro(c.till)}
		if got != want {
			t.Errorf("%s at %s: %v to %v, expected %s to %s", c.zone, c.at, time.UnixMicro(got.from).UTC(),
				time.UnixMicro(got.till).UTC(), c.from, c.till)
		}
	}
}
