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

    public function __construct(int $target)
    {
        $this->port = RedisServer::freePort();
        $this->file = sys_get_temp_dir() . '/sgproxy' . getmypid() . '-' . $this->port;
        $null = ['file', '/dev/null', 'w'];
        $command = [PHP_BINARY, __DIR__ . '/proxy.php', (string) $this->port, (string) $target, $this->file];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $null, $null], $pipes)
            ?: throw new \RuntimeException('proxy');
        for ($try = 0; $try < 100; $try++) {
            usleep(20_000);
            $socket = @stream_socket_client("tcp://127.0.0.1:$this->port");
            if ($socket) {
                fclose($socket);
                return;
            }
        }
        throw new \RuntimeException('the proxy did not start');
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

    /** Holds the next reply to a decision back for 300 ms. */
    public function holdNextReply(): void
    {
        $this->tell('hold');
    }

    private function tell(string $what): void
    {
        // In one step, so that the proxy never reads half of it.
        file_put_contents("$this->file.new", $what);
        rename("$this->file.new", $this->file);
    }
}
