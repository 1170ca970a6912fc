<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use InvalidArgumentException;
use PHPUnit\Framework\TestCase;
use Psr\Log\AbstractLogger;
use Sluicegate\Direct\Breaker;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Log;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Markers;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Secrets;
use Sluicegate\Tests\Support\HookedMemory;
use Sluicegate\Tests\Support\RecordingLogger;

/**
 * A line a minute for each cause, with and without memory that requests share.
 */
final class LogTest extends TestCase
{
    /** @return iterable<string, array{callable(): (Memory|Markers)}> what each request makes */
    public static function notes(): iterable
    {
        $memory = new ProcessMemory();
        yield 'a process' => [static fn (): Memory => $memory];
        if (Apcu::isAvailable()) {
            $prefix = 'sg-log:' . bin2hex(random_bytes(4)) . ':';
            yield 'APCu' => [static fn (): Memory => new Apcu($prefix)];
        }
        yield 'FPM without APCu' => [static function (): Markers {
            is_dir(self::shared()) || mkdir(self::shared());
            return new Markers('h:1', self::shared());
        }];
    }

    public static function tearDownAfterClass(): void
    {
        array_map(rmdir(...), glob(self::shared() . '/*') ?: []);
        @rmdir(self::shared());
    }

    private static function shared(): string
    {
        return sys_get_temp_dir() . '/sgmarked' . getmypid();
    }

    /**
     * @dataProvider notes
     * @param callable(): (Memory|Markers) $notes
     */
    public function testEachCauseHasOneLineAMinuteAndOneWhenItIsOver(callable $notes): void
    {
        $logger = new RecordingLogger();
        for ($request = 0; $request < 100; $request++) {
            $log = new Log($logger, $notes());
            $log->recovered('other', 'never');
            $log->warn('redis', 'gone', '', true);
            $log->warn('redis', 'full', 'OOM', true);
            $log->warn('policy:p', 'missing');
        }
        for ($request = 0; $request < 3; $request++) {
            (new Log($logger, $notes()))->recovered('redis', 'back');
        }
        // It goes and comes within the same minute.
        (new Log($logger, $notes()))->warn('redis', 'gone', '', true);
        (new Log($logger, $notes()))->recovered('redis', 'back');
        self::assertSame([
            'warning sluicegate: gone', 'warning sluicegate: full', 'warning sluicegate: missing',
            'notice sluicegate: back',
        ], $logger->lines);
    }

    /**
     * @dataProvider notes
     * @param callable(): (Memory|Markers) $notes
     */
    public function testEachWarningHasItsEndAlsoWithinTheSameMinute(callable $notes): void
    {
        $logger = new RecordingLogger();
        foreach ([['full', 'OOM'], ['locked', 'NOAUTH'], ['full', 'OOM'], ['slow', '']] as [$text, $word]) {
            for ($request = 0; $request < 3; $request++) {
                (new Log($logger, $notes()))->warn('outages', $text, $word, true);
            }
            for ($request = 0; $request < 3; $request++) {
                (new Log($logger, $notes()))->recovered('outages', 'back');
            }
        }
        self::assertSame([
            'warning sluicegate: full', 'notice sluicegate: back', 'warning sluicegate: locked',
            'notice sluicegate: back', 'warning sluicegate: slow', 'notice sluicegate: back',
        ], $logger->lines);
    }

    public function testOfTwoProcessesThatFindTheEndOneLogsIt(): void
    {
        $logger = new RecordingLogger();
        $memory = new HookedMemory();
        $log = new Log($logger, $memory);
        $log->warn('redis', 'gone', '', true);
        $memory->before('over:redis', static fn () => $log->recovered('redis', 'back'));
        $log->recovered('redis', 'back');
        self::assertSame(['warning sluicegate: gone', 'notice sluicegate: back'], $logger->lines);
    }

    public function testAnEndBesideAFailureIsNotLost(): void
    {
        $logger = new RecordingLogger();
        $memory = new HookedMemory();
        $breaker = new Breaker($memory, new Log($logger, $memory), 'h:1', 'nobody');
        // Redis decides for another process just before the line is noted.
        $memory->before('said:redis/', static fn () => $breaker->succeeded(1));
        $breaker->failed(1, 'gone');
        $breaker->succeeded(2);
        $breaker->succeeded(3);
        self::assertSame([
            'warning sluicegate: Redis at h:1 does not answer: gone; nobody',
            'notice sluicegate: Redis at h:1 decides again',
        ], $logger->lines);
    }

    public function testALoggerThatFailsCostsNoDecision(): void
    {
        $logger = new class extends AbstractLogger {
            /**
             * @param mixed $level
             * @param string $message
             * @param array<mixed> $context
             */
            public function log($level, $message, array $context = []): void
            {
                throw new \RuntimeException('the disk is full');
            }
        };
        $gate = Gate::direct(PhpRedis::connect('127.0.0.1', 1), memory: new ProcessMemory(), logger: $logger);
        self::assertTrue($gate->limit('l', Limit::slidingLog(9, '1h'))->check('a')->allowed);
    }

    public function testAMarkerCountsForItsTimeOnly(): void
    {
        $folder = self::folder();
        $markers = new Markers('h:1', $folder);
        self::assertTrue($markers->add('said:a', 1, 60));
        self::assertFalse($markers->add('said:a', 1, 60));
        foreach ([61, -61] as $ago) {
            foreach ((array) glob("$folder/*") as $file) {
                touch((string) $file, time() - $ago);
            }
            self::assertTrue((new Markers('h:1', $folder))->add('said:a', 1, 60));
        }
        self::assertFalse($markers->add('said:a', 1, 60));
        self::assertTrue((new Markers('h:2', $folder))->add('said:a', 1, 60));
        for ($number = 0; $number < 2000; $number++) {
            $markers->add("said:$number", 1, 60);
        }
        self::assertLessThanOrEqual(257, count((array) glob("$folder/*")));
        array_map(rmdir(...), glob("$folder/*") ?: []);
        rmdir($folder);
    }

    public function testALinkOfSomebodyElseIsNotFollowed(): void
    {
        $folder = self::folder();
        $markers = new Markers('h:1', $folder);
        $markers->set('said:a', 1, 0);
        $path = (string) (glob("$folder/*") ?: [''])[0];
        rmdir($path);
        symlink("$folder/target", $path);
        self::assertFalse($markers->set('said:a', 1, 0));
        self::assertFileDoesNotExist("$folder/target");
        unlink($path);
        rmdir($folder);
    }

    public function testWhereNoMarkerCanBeSetFewAreLogged(): void
    {
        $markers = new Markers('h:1', '/nonexistent');
        $logged = 0;
        for ($number = 0; $number < 2000; $number++) {
            $logged += $markers->add('said:a', 1, 60) ? 1 : 0;
        }
        self::assertLessThan(100, $logged);
    }

    public function testPasswordsAreNotShown(): void
    {
        $shown = [
            'redis://h:1' => 'redis://h:1', 'redis://bob:s3cret@h' => 'redis://***@h',
            'redis://:s3:c@r/e?t#@h/1' => 'redis://***@h/1', 's3cret@h' => '***@h', 'bob:s3cret@h:1' => '***@h:1',
            'redis://h?auth=s3cret&timeout=1' => 'redis://h?auth=***&timeout=1',
            'http://h?token=s3cret' => 'http://h?token=***',
            'redis://h?password=s3cret' => 'redis://h?password=***', '' => '',
        ];
        foreach ($shown as $url => $text) {
            self::assertSame($text, Secrets::without($url));
        }
        self::assertLessThan(300, strlen(Secrets::without('redis://' . str_repeat('x', 10_000))));
    }

    public function testTracesOfExceptionsHaveNoPasswords(): void
    {
        $before = ini_set('zend.exception_ignore_args', '0');
        $attempts = [
            static fn () => PhpRedis::ofUrl('redis://:s3cret@h/1'),
            static fn () => PhpRedis::ofUrl('redis://:s3cret@h?x=1'),
            static fn () => Gate::remote('tcp://:s3cret@h', 's3cret'),
            static fn () => Gate::remote('http://127.0.0.1:1', 's3cret')->policy('p')->check('a'),
            static fn () => Gate::remote('resp://127.0.0.1:1', 's3cret')->policy('p')->check('a'),
            static fn () => Gate::direct(PhpRedis::connect('127.0.0.1', 1, 's3cret'))->policy('p')->check('a'),
            static fn () => Gate::direct(PhpRedis::sentinel(['127.0.0.1:1'], 'm', 's3cret', 's3cret'))
                ->policy('p')->check('a'),
            static fn () => Gate::direct(new PhpRedisCluster(['127.0.0.1:1'], 's3cret'))->policy('p')->check('a'),
        ];
        foreach ($attempts as $number => $attempt) {
            try {
                $attempt();
                self::fail('no exception');
            } catch (SluicegateException | InvalidArgumentException $e) {
                self::assertStringNotContainsString('s3cret', (string) $e, (string) $number);
                $own = array_filter($e->getTrace(), static fn (array $frame): bool =>
                    str_starts_with($frame['class'] ?? '', 'Sluicegate\\') && $frame['function'] !== '{closure}'
                    && !is_a($frame['class'], self::class, true));
                self::assertNotEmpty($own);
                self::assertStringNotContainsString('s3cret', print_r(array_column($own, 'args'), true), "$number");
            }
        }
        ini_set('zend.exception_ignore_args', (string) $before);
    }

    private static function folder(): string
    {
        $folder = sys_get_temp_dir() . '/sgmarkers' . getmypid();
        mkdir($folder);
        return $folder;
    }
}
