package sluicegate

import (
	"errors"
	"testing"
	"time"
)

func TestARuleThatIsNotValidIsAnErrorWithItsPathAndRange(t *testing.T) {
	gate := newGate(t, newManual())
	const second, tooLong = time.Second, 366*24*time.Hour + time.Microsecond
	for want, rules := range map[string][]Rule{
		"rules: `0` rules, expected 1..=8":                                                  {},
		"rules: `9` rules, expected 1..=8":                                                  make([]Rule, 9),
		"rules[0]: no algorithm":                                                            {{}},
		"rules[0].name: `A` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`":         {PerSecond(1).Named("A")},
		"rules[1].name: `` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`":          {PerSecond(1).Named("a"), PerHour(1)},
		"rules[1].name: `a` is the name of another rule":                                    {PerSecond(1).Named("a"), PerHour(1).Named("a")},
		"rules[0].token_bucket.rate: `0` is outside 1..=4294967296":                         {PerSecond(0)},
		"rules[0].token_bucket.rate: `4294967297` is outside 1..=4294967296":                {PerSecond(1<<32 + 1)},
		"rules[0].token_bucket.rate: `0` is outside 1..=31622400000000":                     {TokenBucket(1, 0)},
		"rules[0].token_bucket.rate: `31622400000001` is outside 1..=31622400000000":        {TokenBucket(1, tooLong)},
		"rules[0].token_bucket.burst: `0` is outside 1..=4294967296":                        {PerSecond(1).Burst(0)},
		"rules[0].token_bucket.initial: `2` is outside 0..=1":                               {PerSecond(1).Initial(2)},
		"rules[0].token_bucket.delay: unknown field":                                        {PerSecond(1).NoDelay()},
		"rules[0].leaky_bucket.burst: `-1` is outside 0..=4294967296":                       {LeakyBucket(1, second).Burst(-1)},
		"rules[0].leaky_bucket.delay: `3` is outside 0..=2":                                 {LeakyBucket(1, second).Burst(2).Delay(3)},
		"rules[0].leaky_bucket.initial: unknown field":                                      {LeakyBucket(1, second).Initial(1)},
		"rules[0].smooth_bursty.rate: `0` is outside 1..=4294967296":                        {SmoothBursty(0, second)},
		"rules[0].smooth_bursty.max_burst: `0` is outside 1..=31622400000000":               {SmoothBursty(1, second).MaxBurst(time.Nanosecond)},
		"rules[0].smooth_warmup.warmup: `0` is outside 1..=31622400000000":                  {SmoothWarmup(1, second, 0)},
		"rules[0].smooth_warmup.cold_factor: `1` is not above 1 and at most 1000":           {SmoothWarmup(1, second, second).ColdFactor(1)},
		"rules[0].smooth_warmup.burst: unknown field":                                       {SmoothWarmup(1, second, second).Burst(1)},
		"rules[0].fixed_window.limit: `0` is outside 1..=4294967296":                        {FixedWindow(0, second)},
		"rules[0].fixed_window.window: `0` is outside 1..=31622400000000":                   {FixedWindow(1, 0)},
		"rules[0].fixed_window.calendar: `4` is not a unit":                                 {CalendarWindow(1, 4, "UTC")},
		"rules[0].fixed_window.align: does not go with `calendar`":                          {CalendarWindow(1, Day, "UTC").FromFirst()},
		"rules[0].fixed_window.time_zone: `+02:00` is not a time zone of the IANA database": {CalendarWindow(1, Day, "+02:00")},
		"rules[0].sliding_window.buckets: `1001` is outside 1..=1000":                       {SlidingWindow(1, second).Buckets(1001)},
		"rules[0].sliding_window.window: `5` is outside 10..=31622400000000":                {SlidingWindow(1, 5*time.Microsecond)},
		"rules[0].sliding_counter.limit: `4294967296` is outside 1..=4294967295":            {SlidingCounter(1<<32, second)},
		"rules[0].sliding_counter.window: `0` is outside 1..=31622400000000":                {SlidingCounter(1, 0)},
		"rules[0].sliding_log.limit: `10001` is outside 1..=10000":                          {SlidingLog(10_001, second)},
		"rules[0].sliding_log.window: `-1000000` is outside 1..=31622400000000":             {SlidingLog(1, -second)},
		"rules[0].concurrency.limit: `10001` is outside 1..=10000":                          {Concurrency(10_001, second)},
		"rules[0].concurrency.ttl: `31622400000001` is outside 1..=31622400000000":          {Concurrency(1, tooLong)},
	} {
		if _, err := gate.Limit("a", rules...); !errors.Is(err, ErrRules) || err.Error() != "rules: "+want {
			t.Errorf("%v, expected rules: %s", err, want)
		}
	}
	if _, err := gate.Limit("A", PerSecond(1)); err == nil || err.Error() != "rules: name: `A` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`" {
		t.Error(err)
	}
}
