<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;

/**
 * A server of the tests, with policies of a file; it ends with them.
 */
final class Server
{
    /** @var resource */
    private $process;
    private string $log;
    private string $policies;

    /**
     * @param list<array<mixed>> $policies
     * @param array<string, string> $env
     * @param list<string> $options
     * @param bool $listen whether it listens on a port of its choice; else the environment says where
     */
    public function __construct(array $policies, array $env = [], array $options = [], bool $listen = true)
    {
        $this->policies = (string) tempnam(sys_get_temp_dir(), 'sgp');
        $this->log = (string) tempnam(sys_get_temp_dir(), 'sgl');
        file_put_contents($this->policies, json_encode(['policies' => $policies], JSON_PRESERVE_ZERO_FRACTION));
        $command = [self::program(), 'serve', '--policies', $this->policies, ...$options];
        array_push($command, ...($listen ? ['--listen', '127.0.0.1:0'] : []));
        $env += [
            'SLUICEGATE__RESP__LISTEN' => '127.0.0.1:0',
            'SLUICEGATE__RLS__LISTEN' => '127.0.0.1:0',
            'SLUICEGATE__ADMIN__LISTEN' => '127.0.0.1:0',
        ];
        // Both streams are appended: with an offset each, one would write over the other.
        $out = ['file', $this->log, 'a'];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $out, $out], $pipes, null, $env + getenv())
            ?: throw new \RuntimeException('sluicegate');
        Patience::until(
            fn (): bool => $this->address('http') !== null || !proc_get_status($this->process)['running'],
            'the server listens',
        );
        $this->address('http') ?? throw new \RuntimeException((string) file_get_contents($this->log));
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
        unlink($this->policies);
        unlink($this->log);
    }

    /** Where it listens for a protocol, such as `http`: host and port. */
    public function address(string $protocol): ?string
    {
        $log = (string) file_get_contents($this->log);
        return preg_match("~listening on $protocol://(\S+)\n~", $log, $found) ? $found[1] : null;
    }

    /** Runs a command of the program and returns its output; skips the test if there is no program. */
    public static function run(string $command): string
    {
        self::require();
        return (string) shell_exec(escapeshellarg(self::program()) . " $command");
    }

    /** The option `--store` for a Redis of this machine, with a deadline that a busy machine keeps. */
    public static function store(int $port): string
    {
        return "redis://127.0.0.1:$port?deadline_ms=5000";
    }

    /** Skips the test where there is no server. */
    public static function require(): void
    {
        if (!is_executable(self::program())) {
            getenv('CI') === 'true'
                ? TestCase::fail('no server at ' . self::program())
                : TestCase::markTestSkipped('no server at ' . self::program() . '; set SLUICEGATE_BIN');
        }
    }

    private static function program(): string
    {
        return getenv('SLUICEGATE_BIN') ?: dirname(__DIR__, 4) . '/target/debug/sluicegate';
    }
}
