<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\Filesystem\Filesystem;

/**
 * Runs examples/ as their heads say. FpmTest runs examples/fpm.php.
 */
final class ExamplesTest extends TestCase
{
    private const DIR = __DIR__ . '/../examples';

    /** @return array<string, string> */
    private static function environment(RedisServer $redis): array
    {
        return ['REDIS_PORT' => (string) $redis->port, 'DEADLINE_MS' => '10000'];
    }

    public function testPlain(): void
    {
        $redis = RedisServer::shared();
        $run = static fn (): string => (string) shell_exec(sprintf(
            'DEADLINE_MS=10000 REDIS_PORT=%d %s -d error_reporting=-1 -d display_errors=1 %s bob 2>&1',
            $redis->port,
            PHP_BINARY,
            escapeshellarg(self::DIR . '/plain.php'),
        ));
        self::assertSame(["sent, 2 left\n", "sent, 1 left\n", "sent, 0 left\n"], [$run(), $run(), $run()]);
        self::assertMatchesRegularExpression('/^not sent, try again in [1-6] s\n$/', $run());
    }

    public function testTheExamplesLog(): void
    {
        $port = RedisServer::freePort();
        $output = (string) shell_exec(sprintf(
            'REDIS_PORT=%d %s -d error_log= -d error_reporting=-1 -d display_errors=1 %s bob 2>&1',
            $port,
            PHP_BINARY,
            escapeshellarg(self::DIR . '/plain.php'),
        ));
        self::assertStringContainsString("warning sluicegate: Redis at 127.0.0.1:$port does not answer: ", $output);
        self::assertStringContainsString("sent, 2 left\n", $output);
        foreach (['plain', 'psr15', 'fpm'] as $example) {
            $code = (string) file_get_contents(self::DIR . "/$example.php");
            self::assertStringContainsString("logger: require __DIR__ . '/logger.php',", $code);
        }
    }

    public function testTheExampleForSymfonyLogs(): void
    {
        $port = RedisServer::freePort();
        $dir = sys_get_temp_dir() . '/sg-symfony-' . bin2hex(random_bytes(8));
        $output = (string) shell_exec(sprintf(
            'APP_CACHE_DIR=%1$s APP_LOG_DIR=%1$s REDIS_PORT=%2$d %3$s -d error_log= %4$s 2>&1',
            $dir,
            $port,
            PHP_BINARY,
            escapeshellarg(self::DIR . '/symfony.php'),
        ));
        (new Filesystem())->remove($dir);
        self::assertStringContainsString("sluicegate: Redis at 127.0.0.1:$port does not answer: ", $output);
        self::assertStringContainsString("an order, 2 left\n", $output);
    }

    public function testPsr15(): void
    {
        $redis = RedisServer::shared();
        $server = new HttpServer(self::DIR . '/psr15.php', self::environment($redis));
        foreach (['2', '1', '0'] as $left) {
            $answer = HttpServer::get($server->url);
            self::assertSame([200, "an order\n"], [$answer->status, $answer->body], $server->complaints());
            self::assertStringStartsWith("\"limit\";r=$left;t=", $answer->headers['ratelimit']);
        }
        $refused = HttpServer::get($server->url, 'X-Forwarded-For: 192.0.2.1');
        self::assertSame([429, 'application/problem+json'], [$refused->status, $refused->headers['content-type']]);
        self::assertEqualsWithDelta(60, (int) $refused->headers['retry-after'], 7);
        self::assertStringContainsString('quota-exceeded', $refused->body);
        self::assertSame('', $server->complaints());
    }

    public function testSymfony(): void
    {
        $redis = RedisServer::shared();
        $dir = sys_get_temp_dir() . '/sg-symfony-' . bin2hex(random_bytes(8));
        $server = new HttpServer(self::DIR . '/symfony.php', [
            'APP_CACHE_DIR' => "$dir/cache", 'APP_LOG_DIR' => "$dir/log",
        ] + self::environment($redis));
        foreach ([2, 1, 0] as $left) {
            $answer = HttpServer::get($server->url);
            self::assertSame([200, "an order, $left left\n"], [$answer->status, $answer->body], $server->complaints());
        }
        $refused = HttpServer::get($server->url);
        self::assertSame(429, $refused->status);
        self::assertEqualsWithDelta(60, (int) $refused->headers['retry-after'], 7);
        self::assertSame('', $server->complaints());
        unset($server);
        (new Filesystem())->remove($dir);
    }

    public function testLaravel(): void
    {
        $redis = RedisServer::shared();
        $server = new HttpServer(self::DIR . '/laravel.php', self::environment($redis));
        foreach (['2', '1', '0'] as $left) {
            $answer = HttpServer::get($server->url);
            self::assertSame([200, "an order\n"], [$answer->status, $answer->body], $server->complaints());
            self::assertSame(['3', $left], [
                $answer->headers['x-ratelimit-limit'], $answer->headers['x-ratelimit-remaining'],
            ]);
        }
        $refused = HttpServer::get($server->url);
        self::assertSame([429, "Too Many Attempts.\n"], [$refused->status, $refused->body]);
        self::assertEqualsWithDelta(60, (int) $refused->headers['retry-after'], 2);
        self::assertSame(200, HttpServer::get("$server->url/report")->status);
        self::assertSame(429, HttpServer::get("$server->url/report")->status);
        self::assertSame('', $server->complaints());
    }
}
