package kernel

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"
)

// Window is a calendar window in µs since 1970: its first instant and the first after it.
type Window struct{ From, Till int64 }

// The units of calendar windows. A week begins on Monday.
const (
	UnitDay = iota
	UnitWeek
	UnitMonth
	UnitYear
)

// UnitNames are the units as records have them, by their numbers.
var UnitNames = [...]string{"day", "week", "month", "year"}

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

// LoadZone finds a zone by its name, without regard to case.
func LoadZone(name string) (*time.Location, error) {
	canonical, ok := zoneByLower()[lower(name)]
	if !ok {
		return nil, errZone
	}
	return time.LoadLocation(canonical)
}

// Calendar works out windows of a unit in a zone, and keeps the last one.
type Calendar struct {
	Unit int
	Zone *time.Location
	mu   sync.Mutex
	last Window
}

// Around returns the window around an instant in µs.
func (c *Calendar) Around(now int64) Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now < c.last.From || now >= c.last.Till {
		c.last = windowAround(c.Unit, c.Zone, now)
	}
	return c.last
}

func windowAround(unit int, zone *time.Location, now int64) Window {
	year, month, day := time.UnixMicro(now).In(zone).Date()
	switch unit {
	case UnitWeek:
		date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		day -= (int(date.Weekday()) + 6) % 7
	case UnitMonth:
		day = 1
	case UnitYear:
		month, day = time.January, 1
	}
	w := Window{From: firstInstant(zone, year, month, day)}
	for {
		switch unit {
		case UnitDay:
			day++
		case UnitWeek:
			day += 7
		case UnitMonth:
			month++
		case UnitYear:
			year++
		}
		// Where clocks turn back across midnight the old date comes again: a window that has ended stays ended.
		if w.Till = firstInstant(zone, year, month, day); w.Till > now {
			w.From = max(w.From, 0)
			return w
		}
		w.From = w.Till
	}
}

// firstInstant returns the first instant of a date in a zone, in µs: its midnight, the earlier one of two, or the first
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

// zoneHash is the number of a zone in rules: the lower 48 bits of the hash of its name.
func zoneHash(zone string) float64 {
	hash := PermitOf(zone)
	return float64(binary.BigEndian.Uint64(hash[8:]) & (1<<48 - 1))
}
