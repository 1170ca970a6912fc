<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;
use Redis;
use RedisException;

/**
 * A Redis of the tests, on a free port; it ends with them. `SLUICEGATE_REDIS_SERVER` says by which program.
 */
final class RedisServer
{
    /** Ports to try: another program may take a free one first, and a node of a cluster needs the one 10,000 above, too. */
    private const PORTS_MAX = 10;

    public readonly int $port;
    public readonly string $dir;
    /** @var resource|null */
    private $process;
    /** @var list<string> */
    private array $options;

    private static ?self $shared = null;

    /** @param string ...$options of its command line, after those that each has */
    public function __construct(string ...$options)
    {
        $this->options = array_values($options);
        $this->dir = sys_get_temp_dir() . '/sgredis' . getmypid() . '-' . bin2hex(random_bytes(4));
        mkdir($this->dir, 0700);
        for ($try = 1;; $try++) {
            $port = self::freePort();
            if ($this->spawn($port)) {
                $this->port = $port;
                return;
            }
            if ($try === self::PORTS_MAX) {
                throw new \RuntimeException(self::program() . ': ' . file_get_contents("$this->dir/log"));
            }
        }
    }

    public function __destruct()
    {
        $this->stop();
        array_map(unlink(...), array_filter(glob("$this->dir/*") ?: [], is_file(...)));
        @rmdir($this->dir);
    }

    /** Returns the one of all tests, by default emptied. Skips the test if there is no Redis. */
    public static function shared(bool $isEmpty = true): self
    {
        self::require();
        self::$shared ??= new self();
        if ($isEmpty) {
            self::$shared->client()->flushAll();
        }
        return self::$shared;
    }

    public static function require(): void
    {
        if (trim((string) shell_exec('command -v ' . escapeshellarg(self::program()))) === '') {
            $reason = self::program() . ' is not installed';
            getenv('CI') === 'true' ? TestCase::fail($reason) : TestCase::markTestSkipped($reason);
        }
    }

    public static function program(): string
    {
        return getenv('SLUICEGATE_REDIS_SERVER') ?: 'redis-server';
    }

    public function client(): Redis
    {
        return self::connected($this->port);
    }

    /** Ends it at once; what it held is lost. */
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
            posix_kill($this->pid(), $signal);
        }
    }

    /** Returns the id of the process, which must run. */
    public function pid(): int
    {
        return $this->process ? proc_get_status($this->process)['pid'] : throw new \RuntimeException('it does not run');
    }

    /** Starts it again, at the same port. */
    public function start(): void
    {
        $this->spawn($this->port) || throw new \RuntimeException(self::program() . ' did not start again');
    }

    public static function freePort(): int
    {
        $socket = stream_socket_server('tcp://127.0.0.1:0') ?: throw new \RuntimeException('no port');
        $name = (string) stream_socket_get_name($socket, false);
        fclose($socket);
        return (int) substr($name, strrpos($name, ':') + 1);
    }

    /** Starts the program, and waits until it answers at the port; returns false if it ended. */
    private function spawn(int $port): bool
    {
        $command = [self::program()];
        if (($this->options[0] ?? '') === '--sentinel') {
            // Sentinels write their configuration.
            file_put_contents("$this->dir/sentinel.conf", '');
            $command[] = "$this->dir/sentinel.conf";
        } else {
            array_push($command, '--save', '', '--repl-diskless-sync-delay', '0');
        }
        array_push($command, '--port', (string) $port, '--bind', '127.0.0.1', '--dir', $this->dir, ...$this->options);
        $log = ['file', "$this->dir/log", 'a'];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $log, $log], $pipes, $this->dir)
            ?: throw new \RuntimeException(self::program());
        return Patience::until(function () use ($port): ?string {
            if (!proc_get_status($this->process)['running']) {
                return 'ended';
            }
            try {
                return self::connected($port)->ping() ? 'answers' : null;
            } catch (RedisException) {
                return null;
            }
        }, 'Redis answers') === 'answers';
    }

    private static function connected(int $port): Redis
    {
        $client = new Redis();
        $client->connect('127.0.0.1', $port, 10.0, null, 0, 10.0);
        return $client;
    }
}
