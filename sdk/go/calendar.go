package sluicegate

import (
	_ "embed"
	"errors"
	"strings"
	"sync"
	"time"
)

// window is a calendar window in µs since 1970: its first instant and the first after it.
type window struct{ from, till int64 }

// unitNames are the units as records have them, by their numbers.
var unitNames = [...]string{"day", "week", "month", "year"}

// zoneNames are the names of the IANA database, one a line.
//
//go:embed zones.txt
var zoneNames string

// zoneByLower has the names of the database by their small letters.
var zoneByLower = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, name := range strings.Fields(zoneNames) {
		names[lower(name)] = name
	}
	return names
})

// lower makes ASCII letters small, and leaves others alone.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

var errZone = errors.New("is not a time zone of the IANA database")

// loadZone finds a zone by its name, without regard to case.
func loadZone(name string) (*time.Location, error) {
	known, ok := zoneByLower()[lower(name)]
	if !ok {
		return nil, errZone
	}
	return time.LoadLocation(known)
}

// calendar works out windows of a unit in a zone, and keeps the last one.
type calendar struct {
	unit Unit
	zone *time.Location
	mu   sync.Mutex
	last window
}

// around gives the window around an instant in µs.
func (c *calendar) around(now int64) window {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now < c.last.from || now >= c.last.till {
		c.last = windowAround(c.unit, c.zone, now)
	}
	return c.last
}

func windowAround(unit Unit, zone *time.Location, now int64) window {
	year, month, day := time.UnixMicro(now).In(zone).Date()
	switch unit {
	case Week:
		date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		day -= (int(date.Weekday()) + 6) % 7
	case Month:
		day = 1
	case Year:
		month, day = time.January, 1
	}
	w := window{from: firstInstant(zone, year, month, day)}
	for {
		switch unit {
		case Day:
			day++
		case Week:
			day += 7
		case Month:
			month++
		case Year:
			year++
		}
		// Where clocks turn back across midnight the old date comes again: a window that has ended stays ended.
		if w.till = firstInstant(zone, year, month, day); w.till > now {
			w.from = max(w.from, 0)
			return w
		}
		w.from = w.till
	}
}

// firstInstant gives the first instant of a date in a zone, in µs: its midnight, the earlier one of two, or the first
// instant after a midnight that clocks skip.
func firstInstant(zone *time.Location, year int, month time.Month, day int) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	// No offset is more than 26 hours, so the date has not begun before this.
	at := time.Unix(midnight-36*3600, 0).In(zone)
	for {
		_, offset := at.Zone()
		start, end := at.ZoneBounds()
		first := midnight - int64(offset)
		if !start.IsZero() {
			first = max(first, start.Unix())
		}
		if end.IsZero() || first < end.Unix() {
			return first * 1_000_000
		}
		at = end.In(zone)
	}
}
