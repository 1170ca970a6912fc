<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Ask;
use Sluicegate\Verb;

/**
 * The bytes of a request to the script.
 *
 * @internal
 */
final class Request
{
    /**
     * Encodes a request, after a debt if there is one.
     *
     * @param int $nowUs the instant, unless the time is the server's
     * @param list<array{int, int}|null> $windows of each rule that has a calendar, the window around now
     * @param string $before the rules that wrote the state: empty; 1 and their blob; or 2 if they are lost
     * @param list<int> $debts permits to charge before, of each rule; empty: none
     */
    public static function encode(
        Ask $ask,
        WhoseTime $time,
        int $nowUs,
        array $windows,
        string $before = '',
        array $debts = [],
    ): string {
        $end = $time === WhoseTime::Server ? '' : self::u7($nowUs);
        foreach (array_filter($windows) as [$from, $till]) {
            $end .= self::u7($from) . self::u7($till);
        }
        $end .= $before;
        $bytes = pack('CCV', $ask->verb->value, $time->value, $ask->cost);
        $bytes .= $ask->verb === Verb::Reserve ? self::u7($ask->maxWaitUs ?? Ask::MAX_WAIT_US) : '';
        $bytes .= $ask->permit . $end;
        if ($debts === []) {
            return $bytes;
        }
        $debit = pack('CCVV*', 11, $time->value, 1, ...$debts) . $end;
        return pack('Cv', 12, strlen($debit)) . $debit . $bytes;
    }

    private static function u7(int $number): string
    {
        return substr(pack('P', $number), 0, 7);
    }
}
