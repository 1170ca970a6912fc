<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

/**
 * A proxy before Redis that loses replies on demand.
 */
final class Proxy
{
    public readonly int $port;
    private string $file;
    /** @var resource */
    private $process;

    /** @param int|null $port where it listens; null: at a free one */
    public function __construct(int $target, ?int $port = null)
    {
        $this->port = $port ?? RedisServer::freePort();
        $this->file = sys_get_temp_dir() . '/sgproxy' . getmypid() . '-' . $this->port;
        $null = ['file', '/dev/null', 'w'];
        $command = [PHP_BINARY, __DIR__ . '/proxy.php', (string) $this->port, (string) $target, $this->file];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $null, $null], $pipes)
            ?: throw new \RuntimeException('proxy');
        Patience::until(
            fn (): bool => ($socket = @stream_socket_client("tcp://127.0.0.1:$this->port")) && fclose($socket),
            'the proxy starts',
        );
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
        @unlink($this->file);
    }

    /** Loses the next reply to a decision after its first bytes. */
    public function loseNextReply(int $after = 0): void
    {
        $this->tell("cut $after");
    }

    /** Keeps the next reply to a decision back, until who asked leaves. */
    public function holdNextReply(): void
    {
        $this->tell('hold');
    }

    /** Makes each answer later by so many ms; 0: no more. */
    public function slowDown(int $ms): void
    {
        $ms > 0 ? $this->tell("slow $ms") : unlink($this->file);
    }

    private function tell(string $what): void
    {
        // In one step, so that the proxy never reads half of it.
        file_put_contents("$this->file.new", $what);
        rename("$this->file.new", $this->file);
    }
}
