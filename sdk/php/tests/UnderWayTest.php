<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Decision;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\Runner;
use Sluicegate\Tests\Support\Gates;

/**
 * A host of which one process reaches Redis and others do not, as at its start: what Redis may grant, no share grants
 * as well.
 */
final class UnderWayTest extends TestCase
{
    /** @return iterable<string, array{Memory}> */
    public static function memories(): iterable
    {
        yield 'process' => [new ProcessMemory()];
        if (Apcu::isAvailable()) {
            yield 'APCu' => [new Apcu('under-way:')];
        }
    }

    /** @dataProvider memories */
    public function testWhatIsUnderWayIsNoReasonForAShare(Memory $memory): void
    {
        $limit = Limit::slidingLog(20, '1h');
        $refused = self::gate($memory, static fn (): never => throw new ConnectionFailure('Connection refused', false));
        $others = $refused->limit('l', $limit);
        $admitted = [];
        $late = self::gate($memory, static function () use ($others, &$admitted): string {
            // Redis has not answered yet, and other processes of the host have no connection.
            for ($number = count($admitted); $number < 25; $number++) { // Later calls charge what is owed.
                $admitted[] = $others->check('a');
            }
            return "\x01" . str_repeat("\0", 26);
        })->limit('l', $limit)->check('a', 3);
        self::assertSame([true, Mode::Store], [$late->allowed, $late->mode]);
        $passed = array_filter($admitted, static fn (Decision $of): bool => $of->allowed);
        self::assertSame([25, 17], [count($admitted), count($passed)]);
        foreach ($admitted as $decision) {
            self::assertSame(Mode::Local, $decision->mode);
            self::assertSame($decision->allowed ? 0 : 100_000, $decision->retryAfterUs);
        }
        // The reply had all in use, so the share has nothing left.
        $after = $others->check('a');
        self::assertSame([false, Mode::Local], [$after->allowed, $after->mode]);
        self::assertGreaterThan(100_000, $after->retryAfterUs);
    }

    /** @param callable(): string $script answers calls of the script */
    private static function gate(Memory $memory, callable $script): Gate
    {
        return Gates::direct(new class ($script) implements Runner {
            /** @param callable(): string $script */
            public function __construct(private $script)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                return $command[0] === 'EVALSHA' ? ($this->script)() : '';
            }

            public function endpoint(): string
            {
                return 'under-way:6379/0';
            }
        }, memory: $memory);
    }
}
