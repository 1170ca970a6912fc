<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

/**
 * A server that answers whatever it is asked first with a text, of which the end comes byte by byte.
 */
final class Drip
{
    public readonly int $port;
    /** @var resource */
    private $process;

    /** @param int $eachUs how long it waits before each byte of `$end` */
    public function __construct(string $begin, string $end, int $eachUs)
    {
        $this->port = RedisServer::freePort();
        $null = ['file', '/dev/null', 'w'];
        $command = [
            PHP_BINARY, __DIR__ . '/drip.php', (string) $this->port, bin2hex($begin), bin2hex($end), (string) $eachUs,
        ];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $null, $null], $pipes)
            ?: throw new \RuntimeException('drip');
        Patience::until(
            fn (): bool => ($socket = @stream_socket_client("tcp://127.0.0.1:$this->port")) && fclose($socket),
            'it drips',
        );
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
    }
}
