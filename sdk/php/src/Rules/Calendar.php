<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use DateTimeImmutable;
use DateTimeZone;

/**
 * Windows of a calendar: days, weeks, months or years of a time zone.
 *
 * @internal
 */
final readonly class Calendar
{
    public const UNITS = ['day', 'week', 'month', 'year'];

    /**
     * @param string $unit one of UNITS
     * @param string $zone a name of the IANA database, in the spelling of the policy
     */
    public function __construct(public string $unit, public string $zone)
    {
    }

    /** The lower 48 bits of the 128-bit FNV-1a hash of a zone's name. */
    public static function zoneHash(string $zone): int
    {
        return hexdec(bin2hex(substr(Fnv::hash128($zone), 10)));
    }

    /** The zone's name as the database spells it, or null if the database does not have it. */
    public static function findZone(string $name): ?string
    {
        static $names = null;
        if ($names === null) {
            $list = DateTimeZone::listIdentifiers(DateTimeZone::ALL_WITH_BC);
            $names = array_combine(array_map(strtolower(...), $list), $list);
            // Files beside the database on some systems, which are not zones.
            unset($names['localtime'], $names['posixrules']);
        }
        return $names[strtolower($name)] ?? null;
    }

    /**
     * The window around an instant: its first instant, and the first after it, in µs since 1970.
     *
     * @return array{int, int}
     */
    public function windowAround(int $nowUs): array
    {
        // One window for each unit of each zone, of which the database has some 600.
        static $latest = [];
        $window = $latest["$this->unit $this->zone"] ?? null;
        if ($window === null || $nowUs < $window[0] || $nowUs >= $window[1]) {
            $window = $latest["$this->unit $this->zone"] = $this->findWindow($nowUs);
        }
        return $window;
    }

    /** @return array{int, int} */
    private function findWindow(int $nowUs): array
    {
        $zone = new DateTimeZone(self::findZone($this->zone) ?? 'UTC');
        $seconds = intdiv($nowUs, 1_000_000);
        $date = (new DateTimeImmutable('@' . $seconds))->setTimezone($zone);
        [$year, $month, $day] = array_map(intval(...), explode('-', $date->format('Y-n-j')));
        $weekday = (int) $date->format('N');
        while (true) {
            [$first, $next] = match ($this->unit) {
                'day' => [[$year, $month, $day], [$year, $month, $day + 1]],
                'week' => [[$year, $month, $day - $weekday + 1], [$year, $month, $day - $weekday + 8]],
                'month' => [[$year, $month, 1], [$year, $month + 1, 1]],
                default => [[$year, 1, 1], [$year + 1, 1, 1]],
            };
            $till = self::firstInstant($zone, ...$next);
            if ($till > $seconds) {
                break;
            }
            // Clocks turned back across midnight: that window has ended, and it stays ended.
            $day++;
            $weekday = $weekday % 7 + 1;
        }
        return [max(self::firstInstant($zone, ...$first), 0) * 1_000_000, $till * 1_000_000];
    }

    /** The first second of a date, or of the next one that the zone has; days and months may overflow. */
    private static function firstInstant(DateTimeZone $zone, int $year, int $month, int $day): int
    {
        $midnight = gmmktime(0, 0, 0, $month, $day, $year);
        // An offset is less than a day, so the first instant is within a day of the same numbers in UTC. Between two
        // changes of the offset local time runs with UTC: the first second that shows the date or a later one is
        // either a midnight of one span, or the beginning of a span.
        $from = $midnight - 93_600;
        $spans = $zone->getTransitions($from, $midnight + 180_000) ?: [];
        $end = $midnight + 180_000;
        foreach ($spans as $place => $span) {
            $begins = max($span['ts'], $from);
            $ends = $spans[$place + 1]['ts'] ?? $end;
            $first = max($begins, $midnight - $span['offset']);
            if ($first < $ends) {
                return $first;
            }
        }
        return $midnight;
    }
}
