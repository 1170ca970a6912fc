<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Redis\Runner;

/**
 * Counts what another runner is asked.
 */
final class CountingRunner implements Runner
{
    public int $calls = 0;

    public function __construct(private readonly Runner $runner)
    {
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        $this->calls++;
        return $this->runner->run($key, $command, $leftUs);
    }

    public function endpoint(): string
    {
        return $this->runner->endpoint();
    }
}
