<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;

/**
 * `tests/api.txt` lists what programs may use, so that a change of it is seen in review. `SLUICEGATE_WRITE=1` writes
 * it anew.
 */
final class ApiTest extends TestCase
{
    private const FILE = __DIR__ . '/api.txt';

    public function testWhatProgramsMayUseIsAsItIsListed(): void
    {
        if (!class_exists('Illuminate\Foundation\Application') || !class_exists('Predis\Client')) {
            $reason = 'Symfony, Laravel and Predis are not installed';
            getenv('CI') === 'true' ? self::fail($reason) : self::markTestSkipped($reason);
        }
        $out = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['pipe', 'w']];
        $process = proc_open([PHP_BINARY, '-d', 'display_errors=stderr', __DIR__ . '/Support/api.php'], $out, $pipes)
            ?: throw new \RuntimeException('php');
        [$api, $errors] = [stream_get_contents($pipes[1]), stream_get_contents($pipes[2])];
        self::assertSame([0, ''], [proc_close($process), $errors]);
        if (getenv('SLUICEGATE_WRITE') === '1') {
            file_put_contents(self::FILE, $api);
        }
        self::assertSame((string) file_get_contents(self::FILE), $api, 'SLUICEGATE_WRITE=1 writes tests/api.txt');
    }
}
