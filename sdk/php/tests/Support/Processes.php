<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;

/**
 * Processes of a test that run at the same time.
 */
final class Processes
{
    /** The longest wait for the result of a process, in s. */
    private const SECONDS_MAX = 100;

    /** @var array<int, resource> the stream with the result of each process, by its id */
    private array $streams = [];

    /** @param callable(int): mixed $run runs in each process, given its number; the result is sent as JSON */
    public function __construct(int $count, callable $run)
    {
        for ($number = 0; $number < $count; $number++) {
            $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) ?: throw new \RuntimeException('sockets');
            $pid = pcntl_fork();
            if ($pid === 0) {
                try {
                    $result = $run($number);
                } catch (\Throwable $e) {
                    $result = "$e";
                }
                fwrite($pair[1], json_encode($result) . "\n");
                // The parent's servers are not this process' to stop.
                posix_kill((int) getmypid(), SIGKILL);
            }
            fclose($pair[1]);
            stream_set_timeout($pair[0], self::SECONDS_MAX);
            $this->streams[$pid] = $pair[0];
        }
    }

    /**
     * Returns the results of all processes, as soon as all have one.
     *
     * @return list<mixed>
     */
    public function results(): array
    {
        $results = [];
        foreach ($this->streams as $pid => $stream) {
            $result = json_decode((string) fgets($stream), true);
            is_string($result) || $result === null ? TestCase::fail($result ?? 'a process ended early') : null;
            pcntl_waitpid($pid, $status);
            $results[] = $result;
        }
        $this->streams = [];
        return $results;
    }

    /** Skips the test where processes cannot share a memory. */
    public static function require(): void
    {
        if (!\Sluicegate\Memory\Apcu::isAvailable() || !function_exists('pcntl_fork')) {
            $reason = 'needs APCu on command lines (apc.enable_cli=1) and pcntl';
            getenv('CI') === 'true' ? TestCase::fail($reason) : TestCase::markTestSkipped($reason);
        }
    }
}
