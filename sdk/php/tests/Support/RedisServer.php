<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;
use Redis;

/**
 * A Redis of the tests, on a free port; it ends with them.
 */
final class RedisServer
{
    public readonly int $port;
    /** @var resource|null */
    private $process;

    private static ?self $shared = null;

    public function __construct(string ...$options)
    {
        $this->port = self::freePort();
        $this->start($options);
    }

    public function __destruct()
    {
        $this->stop();
    }

    /** One for all tests, empty. Skips the test where there is no Redis. */
    public static function shared(): self
    {
        self::require();
        self::$shared ??= new self();
        self::$shared->client()->flushAll();
        return self::$shared;
    }

    public static function require(): void
    {
        if (!is_executable('/usr/bin/redis-server') && trim((string) shell_exec('command -v redis-server')) === '') {
            getenv('CI') === 'true'
                ? TestCase::fail('redis-server is not installed')
                : TestCase::markTestSkipped('redis-server is not installed');
        }
    }

    public function client(): Redis
    {
        $client = new Redis();
        $client->connect('127.0.0.1', $this->port);
        return $client;
    }

    public function stop(): void
    {
        if ($this->process) {
            proc_terminate($this->process, SIGKILL);
            proc_close($this->process);
            $this->process = null;
        }
    }

    /** Sends a signal to it, such as SIGSTOP. */
    public function signal(int $signal): void
    {
        if ($this->process) {
            posix_kill(proc_get_status($this->process)['pid'], $signal);
        }
    }

    /** @param list<string> $options */
    public function start(array $options = []): void
    {
        $command = ['redis-server', '--port', (string) $this->port, '--save', '', '--bind', '127.0.0.1', ...$options];
        $null = ['file', '/dev/null', 'w'];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $null, $null], $pipes, sys_get_temp_dir())
            ?: throw new \RuntimeException('redis-server');
        for ($try = 0; $try < 200; $try++) {
            usleep(20_000);
            try {
                if ($this->client()->ping()) {
                    return;
                }
            } catch (\RedisException) {
                // Not yet.
            }
        }
        throw new \RuntimeException('redis-server did not start');
    }

    public static function freePort(): int
    {
        $socket = stream_socket_server('tcp://127.0.0.1:0') ?: throw new \RuntimeException('no port');
        $name = (string) stream_socket_get_name($socket, false);
        fclose($socket);
        return (int) substr($name, strrpos($name, ':') + 1);
    }
}
