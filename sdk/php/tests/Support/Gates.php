<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Gate;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Runner;

/**
 * Gates of tests that are not about deadlines: a busy machine keeps theirs, too.
 */
final class Gates
{
    public const DEADLINE_MS = 10_000;

    /** A gate at a Redis of this machine, with a memory of its own. */
    public static function direct(int|Runner $redis, mixed ...$options): Gate
    {
        $redis = is_int($redis) ? self::runner($redis) : $redis;
        $options += ['memory' => new ProcessMemory(), 'deadlineMs' => self::DEADLINE_MS];
        self::warm($options['memory']);
        return Gate::direct($redis, ...$options);
    }

    /** Makes a host that started long ago: its first seconds, with a longer deadline, are over. */
    public static function warm(Memory $memory): Memory
    {
        $memory->add('started', 0, 0);
        return $memory;
    }

    public static function runner(int $port): PhpRedis
    {
        return PhpRedis::connect('127.0.0.1', $port, timeout: self::DEADLINE_MS / 1000);
    }

    public static function remote(string $url, mixed ...$options): Gate
    {
        return Gate::remote($url, ...$options + ['timeoutMs' => self::DEADLINE_MS]);
    }
}
