<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

/**
 * PHP's own web server with a script, on a free port; it ends with the object.
 */
final class HttpServer
{
    public readonly string $url;
    /** @var resource */
    private $process;
    private string $log;

    /** @param array<string, string> $env */
    public function __construct(string $script, array $env)
    {
        $port = RedisServer::freePort();
        $this->url = "http://127.0.0.1:$port";
        $this->log = (string) tempnam(sys_get_temp_dir(), 'sgh');
        $command = [
            PHP_BINARY, '-d', 'error_reporting=-1', '-d', 'display_errors=stderr', '-d', 'log_errors=0',
            '-S', "127.0.0.1:$port", $script,
        ];
        $out = ['file', $this->log, 'w'];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $out, $out], $pipes, null, $env + getenv())
            ?: throw new \RuntimeException($script);
        Patience::until(
            static fn (): bool => (bool) @fsockopen('127.0.0.1', $port, $code, $message, 1),
            "$script is served",
        );
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
        unlink($this->log);
    }

    /** Returns the warnings and errors that PHP logged. */
    public function complaints(): string
    {
        $log = (string) file_get_contents($this->log);
        preg_match_all('/^.*(?:Warning|Notice|Deprecated|Fatal|Exception).*$/m', $log, $found);
        return implode("\n", $found[0]);
    }

    /**
     * The response to a request.
     *
     * @return object{status: int, headers: array<string, string>, body: string, text: string}
     */
    public static function get(string $url, string ...$headers): object
    {
        $context = stream_context_create(['http' => [
            'ignore_errors' => true, 'header' => $headers, 'timeout' => 20, 'protocol_version' => 1.1,
        ]]);
        $body = (string) file_get_contents($url, false, $context);
        $lines = $http_response_header;
        $fields = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2);
            $fields[strtolower($name)] = trim($value);
        }
        return (object) [
            'status' => (int) explode(' ', $lines[0])[1],
            'headers' => $fields,
            'body' => $body,
            'text' => implode("\n", $lines) . "\n$body",
        ];
    }
}
