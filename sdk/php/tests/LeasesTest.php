<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Policy\Document;

/**
 * `leases` is checked as servers check it, although this process leases nothing.
 */
final class LeasesTest extends TestCase
{
    private const BUCKET = '{"name":"burst","token_bucket":{"rate":"1/s"}}';
    private const SLOTS = '{"name":"slots","concurrency":{"limit":5,"ttl":"1m"}}';

    public function testWordsAndBoundsAreAccepted(): void
    {
        $day = '{"fixed_window":{"limit":1,"calendar":"day"}}';
        foreach (
            [
                self::document(self::SLOTS, '"auto"'),
                self::document(self::SLOTS, '"off"'),
                self::document(self::BUCKET, '{}'),
                self::document(self::BUCKET, '{"max_share":"1%","term":"100ms"}'),
                self::document($day, '{"max_share":"50%","term":"2s"}'),
            ] as $json
        ) {
            self::assertSame('a', Document::parse($json)->name, $json);
        }
    }

    public function testOtherValuesAreErrors(): void
    {
        foreach (
            [
                '"on"' => 'leases: expected `auto`, `off` or `{ max_share: 10%, term: 1s }`',
                '{"more":1}' => 'leases.more: unknown field',
                '{"max_share":10}' => 'leases.max_share: expected a share from 1% to 50%, such as `10%`',
                '{"max_share":"51%"}' =>
                    'leases.max_share: `51%` is not a whole percentage from 1% to 50%, such as `10%`',
                '{"term":"2001ms"}' =>
                    'leases.term: `2001ms` is out of range, expected a duration from 100ms to 2s, such as `1s`',
            ] as $leases => $problem
        ) {
            self::assertProblem($problem, self::document(self::BUCKET, $leases));
        }
    }

    public function testBoundsOfAPolicyThatIsNeverLeasedAreAnErrorWithItsReason(): void
    {
        $log = '{"sliding_log":{"limit":1,"window":"9s"}}';
        $short = '{"fixed_window":{"limit":1,"window":"999ms"}}';
        $override = '"overrides":[{"key":"a","rules":[' . self::BUCKET . ']},'
            . '{"key":"7","rules":[' . self::SLOTS . ']}],';
        foreach (
            [
                [self::SLOTS, '', 'rule `slots` is a `concurrency`, whose permits cannot be leased'],
                [
                    self::BUCKET, $override,
                    'in overrides[1], rule `slots` is a `concurrency`, whose permits cannot be leased',
                ],
                [self::BUCKET, '"overflow":{"queue":{"max_wait":"1s"}},', '`overflow: queue` books permits in advance'],
                [
                    $log, '',
                    'rule `sliding_log` is a `sliding_log`, whose window of less than 10 s is too short to lease',
                ],
                [
                    $short, '',
                    'rule `fixed_window` is a `fixed_window`, whose window of less than 1 s is too short to lease',
                ],
                [
                    '{"leaky_bucket":{"rate":"1/s"}}', '',
                    'rule `leaky_bucket` is a `leaky_bucket`, whose `delay` is not `none`',
                ],
                [
                    '{"smooth_bursty":{"rate":"1/s"}}', '',
                    'rule `smooth_bursty` is a `smooth_bursty`, which books permits in advance',
                ],
            ] as [$rule, $more, $reason]
        ) {
            $json = self::document($rule, '{"max_share":"10%"}', $more);
            self::assertProblem("leases: $reason; expected `auto` or `off`", $json);
        }
    }

    private static function document(string $rule, string $leases, string $more = ''): string
    {
        return '{"name":"a","rules":[' . $rule . '],' . $more . '"leases":' . $leases . '}';
    }

    private static function assertProblem(string $problem, string $json): void
    {
        try {
            Document::parse($json);
            self::fail("read: $json");
        } catch (InvalidRequest $e) {
            self::assertSame("rules: $problem", $e->getMessage(), $json);
        }
    }
}
