<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Redis\Runner;

/**
 * A Redis that gives the same reply to everything.
 */
final class FixedRunner implements Runner
{
    public function __construct(private readonly mixed $reply)
    {
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        return $this->reply;
    }

    public function endpoint(): string
    {
        return 'fixed';
    }
}
