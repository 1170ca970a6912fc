<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use SensitiveParameter;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;

/**
 * Sends JSON to a server, once. With the extension curl connections stay open.
 *
 * @internal
 */
final class Http
{
    /** The longest answer that is read, in bytes: 100 refusals with a response of 64 KiB each have room. */
    public const BODY_MAX = 8_388_608;

    /** The longest wait for an answer, in ms: curl counts in 32 bits. */
    public const TIMEOUT_MAX_MS = 2_147_483_647;

    /** The longest head of an answer, in bytes; curl reads it whole before a caller sees any of it. */
    private const HEAD_MAX = 65_536;

    /** The most bytes of an answer that are read at once. */
    private const PART = 65_536;

    /** Errors of curl before anything is sent: no proxy, no host, no connection, no TLS. */
    private const NOT_SENT = [5, 6, 7, 35, 58, 60, 77];

    private readonly string $base;
    private readonly ?string $socket;
    private ?\CurlHandle $curl = null;

    /** The process whose connection `$curl` has. */
    private int $pid = 0;

    /** @var list<\CurlHandle> those of parents, kept so that their end here closes no connection of a parent */
    private static array $inherited = []; // @phpstan-ignore property.onlyWritten

    /**
     * @param string $url `http://…`, `https://…`, or `http+unix:/PATH`
     * @param int $timeoutMs for the connection and the answer together
     */
    public function __construct(
        #[SensitiveParameter] string $url,
        #[SensitiveParameter] private readonly ?string $token,
        private readonly int $timeoutMs,
    ) {
        $this->socket = str_starts_with($url, 'http+unix:') ? substr($url, 10) : null;
        $this->base = $this->socket === null ? rtrim($url, '/') : 'http://localhost';
    }

    /**
     * Sends a request once and returns its answer.
     *
     * @param int $waitMs the time that the server may hold the request back, beside the timeout
     * @return array{int, array<string, string>, string} status, header fields in lower case, body
     * @throws StoreUnavailable if there is no answer
     * @throws ServerProblem if its head or body is too long
     */
    public function post(string $path, string $json, int $waitMs = 0): array
    {
        $timeoutMs = min($this->timeoutMs + $waitMs, self::TIMEOUT_MAX_MS);
        $headers = ['Content-Type: application/json', 'Accept: application/json', 'User-Agent: sluicegate-php/0.1'];
        if ($this->token !== null) {
            $headers[] = "Authorization: Bearer $this->token";
        }
        return function_exists('curl_init')
            ? $this->byCurl($path, $json, $headers, $timeoutMs)
            : $this->byStream($path, $json, $headers, $timeoutMs);
    }

    /**
     * @param list<string> $headers
     * @return array{int, array<string, string>, string}
     */
    private function byCurl(
        string $path,
        string $json,
        #[SensitiveParameter] array $headers,
        int $timeoutMs,
    ): array {
        $fields = [];
        [$sent, $head, $body] = [0, 0, ''];
        if ($this->curl !== null && getmypid() !== $this->pid) {
            self::$inherited[] = $this->curl;
            $this->curl = null;
        }
        $this->pid = (int) getmypid();
        $curl = $this->curl ??= curl_init() ?: throw new \RuntimeException('curl');
        $options = [
            CURLOPT_URL => $this->base . $path,
            CURLOPT_UPLOAD => true,
            CURLOPT_CUSTOMREQUEST => 'POST',
            CURLOPT_INFILESIZE => strlen($json),
            // A body that cannot be rewound keeps curl from sending the request again on a new connection.
            CURLOPT_READFUNCTION => static function ($handle, $file, int $length) use ($json, &$sent): string {
                $part = substr($json, $sent, $length);
                $sent += strlen($part);
                return $part;
            },
            CURLOPT_HTTPHEADER => [...$headers, 'Expect:'],
            CURLOPT_WRITEFUNCTION => static function ($handle, string $part) use (&$body): int {
                $body .= $part;
                return strlen($body) > self::BODY_MAX ? 0 : strlen($part);
            },
            CURLOPT_TIMEOUT_MS => $timeoutMs,
            // A server holds no request back that has not reached it.
            CURLOPT_CONNECTTIMEOUT_MS => $this->timeoutMs,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HEADERFUNCTION => static function ($handle, string $line) use (&$fields, &$head): int {
                $head += strlen($line);
                if ($head > self::HEAD_MAX) {
                    return 0;
                }
                self::field($fields, $line);
                return strlen($line);
            },
        ];
        if ($this->socket !== null) {
            $options[CURLOPT_UNIX_SOCKET_PATH] = $this->socket;
        }
        curl_setopt_array($curl, $options);
        $answered = curl_exec($curl);
        if (strlen($body) > self::BODY_MAX || $head > self::HEAD_MAX) {
            $status = (int) curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
            $this->curl = null;
            throw self::tooLong($status);
        }
        if ($answered === false) {
            $error = curl_errno($curl);
            $message = curl_error($curl) ?: "curl error $error";
            $this->curl = null;
            throw new StoreUnavailable($message, !in_array($error, self::NOT_SENT, true));
        }
        return [(int) curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $fields, $body];
    }

    /**
     * @param list<string> $headers
     * @return array{int, array<string, string>, string}
     */
    private function byStream(
        string $path,
        string $json,
        #[SensitiveParameter] array $headers,
        int $timeoutMs,
    ): array {
        if ($this->socket !== null) {
            throw new StoreUnavailable('http+unix: needs the extension curl', false);
        }
        $context = stream_context_create(['http' => [
            'method' => 'POST', 'header' => [...$headers, 'Connection: close'], 'content' => $json,
            'timeout' => $timeoutMs / 1000, 'ignore_errors' => true, 'follow_location' => 0,
        ]]);
        $ends = hrtime(true) + 1_000_000 * $timeoutMs;
        $stream = @fopen($this->base . $path, 'r', false, $context);
        $lines = $http_response_header ?? [];
        if ($stream === false || !preg_match('~^HTTP/\S+ (\d{3})~', $lines[0] ?? '', $found)) {
            $message = error_get_last()['message'] ?? 'no answer';
            throw new StoreUnavailable($message, !str_contains($message, 'Connection refused'));
        }
        $body = self::readAll($stream, $ends);
        fclose($stream);
        if (strlen($body) > self::BODY_MAX) {
            throw self::tooLong((int) $found[1]);
        }
        $fields = [];
        foreach ($lines as $line) {
            self::field($fields, $line);
        }
        if (strlen($body) < (int) ($fields['content-length'] ?? 0)) {
            throw new StoreUnavailable('the answer ends in the middle', true);
        }
        return [(int) $found[1], $fields, $body];
    }

    /**
     * Reads a stream to its end, or to one byte more than BODY_MAX.
     *
     * @param resource $stream
     * @param int $ends the deadline, in ns of `hrtime`
     */
    private static function readAll($stream, int $ends): string
    {
        for ($body = ''; strlen($body) <= self::BODY_MAX && !feof($stream);) {
            $leftUs = intdiv($ends - hrtime(true), 1000);
            if ($leftUs <= 0) {
                throw new StoreUnavailable('the answer does not come to its end in time', true);
            }
            stream_set_timeout($stream, intdiv($leftUs, 1_000_000), $leftUs % 1_000_000);
            $body .= (string) fread($stream, min(self::PART, self::BODY_MAX + 1 - strlen($body)));
        }
        return $body;
    }

    private static function tooLong(int $status): ServerProblem
    {
        return new ServerProblem($status, 'the answer is longer than ' . self::BODY_MAX . ' bytes');
    }

    /** @param array<string, string> $fields */
    private static function field(array &$fields, string $line): void
    {
        $parts = explode(':', $line, 2);
        if (isset($parts[1])) {
            $fields[strtolower($parts[0])] = trim($parts[1]);
        }
    }
}
