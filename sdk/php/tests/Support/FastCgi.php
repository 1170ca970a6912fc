<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;

/**
 * Asks FPM at its socket, as a web server does; many requests at once.
 */
final class FastCgi
{
    /** The longest wait for all answers, in s. */
    private const SECONDS_MAX = 60;

    private const BEGIN = 1;
    private const PARAMS = 4;
    private const STDIN = 5;
    private const STDOUT = 6;

    /**
     * Sends all requests before it reads an answer.
     *
     * @param array<string, string> ...$requests the environment of each
     * @return list<string> the answers: header fields, an empty line, and the body
     */
    public static function all(string $socket, array ...$requests): array
    {
        $open = [];
        foreach (array_values($requests) as $number => $env) {
            $open[$number] = self::open($socket, $env);
            stream_set_blocking($open[$number], false);
        }
        $answers = array_fill(0, count($open), '');
        $ends = microtime(true) + self::SECONDS_MAX;
        while ($open !== []) {
            microtime(true) < $ends ?: TestCase::fail('FPM does not answer');
            [$read, $none] = [$open, []];
            stream_select($read, $none, $none, 1);
            foreach ($read as $number => $stream) {
                $answers[$number] .= (string) fread($stream, 65_536);
                if (feof($stream)) {
                    fclose($stream);
                    unset($open[$number]);
                }
            }
        }
        return array_map(self::output(...), $answers);
    }

    /**
     * Sends a request, and returns the stream of its answer.
     *
     * @param array<string, string> $env
     * @return resource
     */
    public static function open(string $socket, array $env)
    {
        $stream = stream_socket_client("unix://$socket", $code, $message, 10)
            ?: throw new \RuntimeException($message);
        $params = '';
        foreach ($env as $name => $value) {
            $params .= pack('NN', strlen($name) | 1 << 31, strlen($value) | 1 << 31) . $name . $value;
        }
        $begin = self::record(self::BEGIN, pack('nCx5', 1, 0));
        fwrite($stream, $begin . self::record(self::PARAMS, $params) . self::record(self::PARAMS, '')
            . self::record(self::STDIN, ''));
        return $stream;
    }

    /**
     * Returns the answers that come first, and removes their streams.
     *
     * @param array<int, resource> $open
     * @return list<string>
     */
    public static function first(int $count, array &$open): array
    {
        $answers = [];
        while (count($answers) < $count) {
            [$read, $none] = [$open, []];
            stream_select($read, $none, $none, self::SECONDS_MAX) ?: TestCase::fail('FPM does not answer');
            foreach ($read as $number => $stream) {
                $answers[] = self::output((string) stream_get_contents($stream));
                fclose($stream);
                unset($open[$number]);
            }
        }
        return $answers;
    }

    private static function record(int $type, string $content): string
    {
        return pack('CCnnCx', 1, $type, 1, strlen($content), 0) . $content;
    }

    private static function output(string $records): string
    {
        $output = '';
        while (strlen($records) >= 8) {
            $head = (array) unpack('Cversion/Ctype/nid/nlength/Cpadding', $records);
            $output .= $head['type'] === self::STDOUT ? substr($records, 8, $head['length']) : '';
            $records = substr($records, 8 + $head['length'] + $head['padding']);
        }
        return $output;
    }
}
