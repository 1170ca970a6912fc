<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;

/**
 * The bridges against the interfaces of versions whose packages are not to be had here: Laravel 11 to 13, Symfony 7. It
 * says that the code loads and that it reads what those pass; it runs none of them.
 */
final class LaterVersionsTest extends TestCase
{
    /** @return iterable<string, array{string, array<mixed>}> */
    public static function frameworks(): iterable
    {
        yield 'Laravel' => ['laravel', [
            [200, '1'], [200, '0'], [429, 66], [200, '1'], [200, '0'], [429, 2], [200, null],
            404, 200, 404, 429, 6,
        ]];
        yield 'Symfony' => ['symfony', [[], false, ['kernel.request', 'kernel.response'], true, 'void', true, false]];
    }

    /**
     * @dataProvider frameworks
     * @param array<mixed> $expected
     */
    public function testTheBridgeFitsTheInterfacesOfLaterVersions(string $framework, array $expected): void
    {
        if (!class_exists('Illuminate\Foundation\Application')) {
            $reason = 'Laravel and Symfony are not installed';
            getenv('CI') === 'true' ? self::fail($reason) : self::markTestSkipped($reason);
        }
        $options = ['-d', 'error_reporting=-1', '-d', 'display_errors=stderr'];
        $command = [PHP_BINARY, ...$options, __DIR__ . '/Support/later.php', $framework];
        $process = proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes)
            ?: throw new \RuntimeException('php');
        [$output, $errors] = [(string) stream_get_contents($pipes[1]), stream_get_contents($pipes[2])];
        self::assertSame([0, ''], [proc_close($process), $errors]);
        self::assertSame($expected, json_decode($output, true));
    }
}
