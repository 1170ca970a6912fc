<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Ask;
use Sluicegate\Verb;

/**
 * The bytes of a request to the script.
 */
final class Request
{
    /**
     * A request.
     *
     * @param int $nowUs the instant, unless the time is the server's
     * @param list<array{int, int}|null> $windows of each rule that has a calendar, the window around now
     * @param string $before how the rules that wrote the state follow: nothing; 1 and their blob; or 2, they are lost
     */
    public static function encode(Ask $ask, WhoseTime $time, int $nowUs, array $windows, string $before = ''): string
    {
        $bytes = pack('CCV', $ask->verb->value, $time->value, $ask->cost);
        if ($ask->verb === Verb::Reserve) {
            $bytes .= self::u7($ask->maxWaitUs ?? Ask::MAX_WAIT_US);
        }
        return $bytes . $ask->permit . self::end($time, $nowUs, $windows) . $before;
    }

    /**
     * A debt, and the request that is decided after it.
     *
     * @param list<int> $permits to charge, of each rule
     * @param list<array{int, int}|null> $windows
     */
    public static function withDebt(
        array $permits,
        Ask $ask,
        WhoseTime $time,
        int $nowUs,
        array $windows,
        string $before = '',
    ): string {
        $debit = pack('CCVV*', 11, $time->value, 1, ...$permits) . self::end($time, $nowUs, $windows) . $before;
        return pack('Cv', 12, strlen($debit)) . $debit . self::encode($ask, $time, $nowUs, $windows, $before);
    }

    /** @param list<array{int, int}|null> $windows */
    private static function end(WhoseTime $time, int $nowUs, array $windows): string
    {
        $bytes = $time === WhoseTime::Server ? '' : self::u7($nowUs);
        foreach ($windows as $window) {
            if ($window !== null) {
                $bytes .= self::u7($window[0]) . self::u7($window[1]);
            }
        }
        return $bytes;
    }

    private static function u7(int $number): string
    {
        return substr(pack('P', $number), 0, 7);
    }
}
