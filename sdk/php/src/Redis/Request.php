<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\KernelRequest;
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
        KernelRequest $request,
        TimeSource $time,
        int $nowUs,
        array $windows,
        string $before = '',
        array $debts = [],
    ): string {
        $end = $time === TimeSource::Server ? '' : self::u7($nowUs);
        foreach (array_filter($windows) as [$from, $till]) {
            $end .= self::u7($from) . self::u7($till);
        }
        $end .= $before;
        $bytes = pack('CCV', $request->verb->value, $time->value, $request->cost);
        $bytes .= $request->verb === Verb::Reserve ? self::u7($request->maxWaitUs ?? KernelRequest::MAX_WAIT_US) : '';
        $bytes .= $request->permit . $request->process . $end;
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
