<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;

/**
 * preload.php has all classes that a decision in Redis needs.
 */
final class PreloadTest extends TestCase
{
    public function testADecisionLoadsNothingMore(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => 5, 'window' => '1h']],
        ]]);
        $program = <<<'PHP'
            require $argv[1] . '/preload.php';
            $before = get_included_files();
            $redis = Sluicegate\Redis\PhpRedis::connect('127.0.0.1', (int) $argv[2], timeout: 10.0);
            $decision = Sluicegate\Gate::direct($redis, deadlineMs: 10_000)->policy('orders')->check('a');
            // What reads a policy that was published is used by one process in ten seconds.
            $more = preg_grep('~/src/(Policy|Rules)/~', array_diff(get_included_files(), $before), PREG_GREP_INVERT);
            echo $decision->remaining, implode(' ', $more);
            PHP;
        $command = [
            PHP_BINARY, '-d', 'apc.enable_cli=1', '-d', 'display_errors=1', '-r', $program, dirname(__DIR__),
            (string) $redis->port,
        ];
        $out = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['pipe', 'w']];
        $process = proc_open($command, $out, $pipes) ?: throw new \RuntimeException('php');
        [$output, $errors] = [stream_get_contents($pipes[1]), stream_get_contents($pipes[2])];
        proc_close($process);
        self::assertSame(['4', ''], [$output, $errors]);
    }
}
