<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Rules\Calendar;

final class CalendarTest extends TestCase
{
    /** @return iterable<string, array{string, string, string, string, string}> */
    public static function windows(): iterable
    {
        yield 'a day' => ['day', 'UTC', '2026-03-01T12:00:00Z', '2026-03-01T00:00:00Z', '2026-03-02T00:00:00Z'];
        yield 'a day of 23 hours' => [
            'day', 'europe/berlin', '2026-03-29T12:00:00Z', '2026-03-28T23:00:00Z', '2026-03-29T22:00:00Z',
        ];
        yield 'a week is from Monday' => [
            'week', 'UTC', '2026-03-01T12:00:00Z', '2026-02-23T00:00:00Z', '2026-03-02T00:00:00Z',
        ];
        yield 'a month' => ['month', 'UTC', '2024-02-29T23:59:59Z', '2024-02-01T00:00:00Z', '2024-03-01T00:00:00Z'];
        yield 'a year' => [
            'year', 'America/New_York', '2026-06-01T00:00:00Z', '2026-01-01T05:00:00Z', '2027-01-01T05:00:00Z',
        ];
        yield 'midnight is skipped' => [
            'day', 'America/Sao_Paulo', '2018-11-04T12:00:00Z', '2018-11-04T03:00:00Z', '2018-11-05T02:00:00Z',
        ];
        yield 'midnight comes twice' => [
            'day', 'America/Havana', '2023-11-05T12:00:00Z', '2023-11-05T04:00:00Z', '2023-11-06T05:00:00Z',
        ];
        yield 'the day before a skipped day' => [
            'day', 'Pacific/Apia', '2011-12-30T09:59:59Z', '2011-12-29T10:00:00Z', '2011-12-30T10:00:00Z',
        ];
        yield 'the day after a skipped day' => [
            'day', 'Pacific/Apia', '2011-12-30T10:00:00Z', '2011-12-30T10:00:00Z', '2011-12-31T10:00:00Z',
        ];
        // Clocks went back from 00:01 of the 7th to 23:01 of the 6th.
        yield 'an old date that comes again is the new date' => [
            'day', 'America/St_Johns', '2010-11-07T03:00:00Z', '2010-11-07T02:30:00Z', '2010-11-08T03:30:00Z',
        ];
        yield 'before 1970' => [
            'year', 'Asia/Tokyo', '1970-01-01T00:00:00Z', '1970-01-01T00:00:00Z', '1970-12-31T15:00:00Z',
        ];
    }

    /** @dataProvider windows */
    public function testTheWindowAroundAnInstant(
        string $unit,
        string $zone,
        string $now,
        string $from,
        string $till,
    ): void {
        [$first, $end] = (new Calendar($unit, $zone))->windowAround(strtotime($now) * 1_000_000 + 999_999);
        self::assertSame([$from, $till], [
            gmdate('Y-m-d\TH:i:s\Z', intdiv($first, 1_000_000)),
            gmdate('Y-m-d\TH:i:s\Z', intdiv($end, 1_000_000)),
        ]);
    }

    public function testZonesAreNamesOfTheDatabase(): void
    {
        foreach (['UTC', 'est5edt', 'Australia/West', 'GB', 'america/argentina/buenos_aires'] as $name) {
            self::assertNotNull(Calendar::findZone($name), $name);
        }
        foreach (['+02:00', 'CEST', 'Etc/Unknown', '', 'Europe/Berlin ', 'EST5EDT4', 'localtime'] as $name) {
            self::assertNull(Calendar::findZone($name), $name);
        }
    }
}
