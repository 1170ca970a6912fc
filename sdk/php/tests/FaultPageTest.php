<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Gate;
use Sluicegate\Http\Key;
use Sluicegate\Http\RateLimitMiddleware;
use Sluicegate\Http\Refusal;
use Sluicegate\Observation;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Drip;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RecordingLogger;
use Sluicegate\Tests\Support\RedisServer;

/**
 * Plays each row of the page of faults through the middleware, and compares what the row promises.
 *
 * @phpstan-type Row array{answer: list<string>, log: list<string>, health: list<string>, metric: list<string>,
 *   after: list<string>}
 */
final class FaultPageTest extends TestCase
{
    private const PAGE = __DIR__ . '/../../../docs/sdk-faults.md';
    private const ASKS = 20;
    private const PASSED = '{"allowed":true,"code":1,"granted":1,"wait_us":0,"limit":5,"remaining":4,'
        . '"retry_after_us":0,"reset_after_us":1,"rule":"r","quotas":[{"name":"r","limit":5,"remaining":4,'
        . '"reset_after_us":1,"window_us":60000000}]}';

    private ManualClock $clock;
    private RecordingLogger $logger;
    private string $result = '';
    private Gate $gate;
    private string $address = '';
    private RedisServer $redis;
    private Proxy $proxy;
    private ?Drip $other = null;
    private ?HttpServer $server = null;
    /** @var resource|null listens, and never answers */
    private $hung = null;

    protected function setUp(): void
    {
        RedisServer::require();
        $this->clock = new ManualClock();
        $this->logger = new RecordingLogger();
    }

    /** @return array<string, Row> the code of the cells, by what is broken */
    private static function page(): array
    {
        $section = explode("\n## ", explode("\n## PHP\n", (string) file_get_contents(self::PAGE), 2)[1], 2)[0];
        $rows = [];
        foreach (explode("\n", $section) as $line) {
            $cells = explode(' | ', $line);
            if (count($cells) !== 6 || $cells[0] === '| Fault') {
                continue;
            }
            $code = array_map(static function (string $cell): array {
                preg_match_all('/`([^`]+)`/', $cell, $found);
                return $found[1];
            }, $cells);
            $rows[substr($cells[0], 2)] = [
                'answer' => $code[1], 'log' => $code[2], 'health' => $code[3],
                'metric' => $code[4], 'after' => $code[5],
            ];
        }
        return $rows;
    }

    /** @return iterable<string, array{string, Row}> */
    public static function rows(): iterable
    {
        foreach (self::page() as $name => $row) {
            yield $name => [$name, $row];
        }
    }

    /**
     * @dataProvider rows
     * @param Row $row
     */
    public function testAFaultIsAsThePageSays(string $name, array $row): void
    {
        match ($name) {
            'Redis is killed' => $this->running(
                $row,
                fn () => $this->redis->stop(),
                fn () => [$this->redis->start(), $this->publish(2)],
            ),
            'Redis is frozen' => $this->running(
                $row,
                fn () => $this->redis->signal(SIGSTOP),
                fn () => $this->redis->signal(SIGCONT),
            ),
            'Redis is slow by 70 ms' => $this->running(
                $row,
                fn () => $this->proxy->slowDown(70),
                fn () => $this->proxy->slowDown(0),
            ),
            'Redis is full' => $this->running(
                $row,
                fn () => $this->redis->client()->config('SET', 'maxmemory', '1'),
                fn () => $this->redis->client()->config('SET', 'maxmemory', '0'),
            ),
            'the password is changed' => $this->running($row, function (): void {
                $client = $this->redis->client();
                $client->config('SET', 'requirepass', 's3cret');
                $client->auth('s3cret');
                $client->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
            }, function (): void {
                $client = $this->redis->client();
                $client->auth('s3cret');
                $client->config('SET', 'requirepass', '');
            }),
            'Redis comes back empty' => $this->running($row, function (): void {
                $this->redis->stop();
                $this->redis->start();
                // The policies are read again, over another connection.
                Patience::until(function (): bool {
                    $this->clock->advance(11.1);
                    $this->ask();
                    return str_contains($this->gate->health()->cause, 'published');
                }, 'a look');
            }, fn () => [$this->publish(3), $this->clock->advance(11.1)]),
            'the policy cannot be read' => $this->running(
                $row,
                function (): void {
                    $this->redis->client()->hMSet('sg:{policies}', ['orders' => '{', '#revision' => '2']);
                    $this->clock->advance(11.1);
                    $this->ask();
                },
                fn () => [$this->publish(3), $this->clock->advance(11.1)],
            ),
            'Redis is away at the start' => $this->starting($row, RedisServer::freePort(), null),
            'nothing is published' => $this->starting($row, $this->startRedis()->port, null, function (): void {
                $this->publish(1);
                $this->clock->advance(11.1);
            }),
            'the password is wrong' => $this->starting($row, $this->withPassword(), 'wrong-s3cret'),
            'Redis expects TLS' => $this->starting($row, $this->answering("\x15\x03\x01\x00\x02\x02\x46"), null),
            'something else answers' => $this->starting($row, $this->answering("HTTP/1.1 400 Bad\r\n\r\n"), null),
            'the policy is edited' => $this->edited($row, 'orders', 50),
            'the policy is removed' => $this->edited($row, 'others', 100),
            'the policy is renamed' => $this->edited($row, 'purchases', 100),
            'a request has 200 header fields' => $this->asked($row, static fn (): array => array_combine(
                array_map(static fn (int $n): string => "X-Name-$n", range(1, 200)),
                array_fill(0, 200, 'value'),
            )),
            'addresses are forged' => $this->asked($row, static fn (int $n): array => [
                'X-Forwarded-For' => str_repeat('203.0.113.7, ', 200) . "198.51.100.$n",
                'X-Real-IP' => "198.51.100.$n",
                'Forwarded' => "for=198.51.100.$n",
            ]),
            'the program stops while Redis hangs' => $this->stopped($row),
            'the server is away' => $this->remote(
                $row,
                static fn (): string => 'http://127.0.0.1:' . RedisServer::freePort(),
            ),
            'the server hangs' => $this->remote($row, function (): string {
                $this->hung = stream_socket_server('tcp://127.0.0.1:0') ?: self::fail('no port');
                return 'http://' . stream_socket_get_name($this->hung, false);
            }),
            'the server answers 500' => $this->remote(
                $row,
                fn (): string => $this->serving('!500 {"detail":"broken"}'),
            ),
            'the token is wrong' => $this->remote(
                $row,
                fn (): string => $this->serving('!401 {"detail":"invalid token"}'),
            ),
        };
    }

    private function startRedis(): RedisServer
    {
        return $this->redis = new RedisServer('--maxmemory-policy', 'noeviction');
    }

    private function publish(int $revision, string $name = 'orders', int $limit = 100): void
    {
        Published::in($this->redis->client(), $revision, ['name' => $name, 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]]);
    }

    private function withPassword(): int
    {
        $this->startRedis();
        $this->redis->client()->config('SET', 'requirepass', 'right');
        return $this->redis->port;
    }

    private function answering(string $text): int
    {
        $this->other = new Drip($text, '', 0);
        return $this->other->port;
    }

    private string $answers = '';

    private function serving(string $answer): string
    {
        $this->answers = (string) tempnam(sys_get_temp_dir(), 'sgp');
        file_put_contents($this->answers, $answer);
        $this->server = new HttpServer(__DIR__ . '/Support/odd.php', ['FILE' => $this->answers]);
        return $this->server->url;
    }

    private function observe(Observation $of): void
    {
        $this->result = $of->errorName() === '' ? "mode={$of->mode()}" : "error={$of->errorName()}";
    }

    private function direct(int $port, int $deadlineMs = 50, ?string $password = null): void
    {
        $this->address = "127.0.0.1:$port";
        $this->gate = Gates::direct(
            PhpRedis::connect('127.0.0.1', $port, $password, 10.0),
            deadlineMs: $deadlineMs,
            nodes: 2,
            clock: $this->clock,
            logger: $this->logger,
            observer: $this->observe(...),
        );
    }

    /** @param array<string, string> $headers */
    private function ask(array $headers = []): ResponseInterface
    {
        $middleware = new RateLimitMiddleware($this->gate->policy('orders'), Key::remoteIp(), new Psr17Factory());
        $request = new ServerRequest('GET', '/', $headers, null, '1.1', ['REMOTE_ADDR' => '192.0.2.1']);
        $response = $middleware->process($request, new class implements RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return new Response(200, [], 'ok');
            }
        });
        self::assertDoesNotMatchRegularExpression('/orders|127\.0/', (string) $response->getBody());
        return $response;
    }

    /** @return list<string> what a client gets, in the words of the page */
    private static function shown(ResponseInterface $response): array
    {
        $fields = array_filter(['RateLimit', 'Retry-After'], $response->hasHeader(...));
        return [(string) $response->getStatusCode(), ...array_values($fields)];
    }

    private function until(string $result): void
    {
        Patience::until(function () use ($result): bool {
            $this->clock->advance(0.35);
            try {
                $this->ask();
            } catch (InvalidRequest) {
                // The middleware leaves mistakes of the program to it.
            }
            return $this->result === $result;
        }, $result);
    }

    /** @param Row $row */
    private function isAsThePageSays(array $row): void
    {
        $this->until($row['metric'][0]);
        for ($asked = 0; $asked < self::ASKS;) {
            try {
                $shown = self::shown($this->ask());
            } catch (InvalidRequest $e) {
                $shown = self::shown(new Response(Refusal::undecided($e)->status));
            }
            if ($this->result === 'mode=shed') { // A process that is late itself, on a busy machine.
                continue;
            }
            $asked++;
            self::assertSame([$row['answer'], $row['metric']], [$shown, [$this->result]]);
        }
        $warnings = $this->logged('warning ');
        self::assertLessThanOrEqual($row['log'] === [] ? 0 : 4, count($warnings), implode("\n", $warnings));
        if ($row['log'] !== []) {
            self::assertHasAll($warnings, [$this->address, ...$row['log']]);
        }
        $this->healthIs($row);
        self::assertStringNotContainsString('s3cret', implode("\n", $this->logger->lines));
    }

    /** @param Row $row */
    private function healthIs(array $row): void
    {
        $health = $this->gate->health();
        $found = [$health->status->value, $health->address];
        self::assertSame([$row['health'][0], $this->address], $found, $health->cause);
        self::assertHasAll([$health->cause], array_slice($row['health'], 1));
        self::assertStringNotContainsString('s3cret', $health->cause);
    }

    /** @param Row $row */
    private function isOver(array $row): void
    {
        $this->until('mode=store');
        Patience::until(fn (): bool => $this->gate->health()->isUp(), 'its health is good again');
        self::assertSame(['200', 'RateLimit'], self::shown($this->ask()));
        if ($row['after'] !== []) {
            self::assertHasAll($this->logged('notice '), $row['after']);
        }
    }

    /** @return list<string> */
    private function logged(string $level): array
    {
        return array_values(array_filter(
            $this->logger->lines,
            static fn (string $line): bool => str_starts_with($line, $level),
        ));
    }

    /**
     * @param list<string> $lines
     * @param list<string> $words
     */
    private static function assertHasAll(array $lines, array $words): void
    {
        foreach ($lines as $line) {
            if (array_filter($words, static fn (string $word): bool => !str_contains($line, $word)) === []) {
                self::assertNotSame([], $lines);
                return;
            }
        }
        self::fail('no line has `' . implode('`, `', $words) . "`:\n" . implode("\n", $lines));
    }

    /** @param Row $row */
    private function running(array $row, callable $begin, callable $end): void
    {
        $this->startRedis();
        $this->publish(1);
        $this->proxy = new Proxy($this->redis->port);
        $this->direct($this->proxy->port);
        $this->until('mode=store');
        $this->logger->lines = [];
        $begin();
        $this->isAsThePageSays($row);
        $end();
        $this->isOver($row);
    }

    /** @param Row $row */
    private function starting(array $row, int $port, ?string $password, ?callable $end = null): void
    {
        $this->direct($port, 2000, $password);
        $this->isAsThePageSays($row);
        if ($end !== null) {
            $end();
            $this->isOver($row);
        }
    }

    /** @param Row $row */
    private function edited(array $row, string $name, int $limit): void
    {
        $this->startRedis();
        $this->publish(1);
        $this->direct($this->redis->port, Gates::DEADLINE_MS);
        $this->until('mode=store');
        $this->publish(2, $name, $limit);
        $this->clock->advance(11.1);
        $this->isAsThePageSays($row);
        if ($name === 'orders') {
            self::assertSame($limit, $this->gate->policy('orders')->peek('a')->limit);
            return;
        }
        $this->publish(3);
        $this->clock->advance(11.1);
        $this->isOver($row);
    }

    /**
     * @param Row $row
     * @param callable(int): array<string, string> $headers
     */
    private function asked(array $row, callable $headers): void
    {
        $this->startRedis();
        $this->publish(1);
        $this->direct($this->redis->port, Gates::DEADLINE_MS);
        $before = $this->ask()->getHeaderLine('RateLimit');
        for ($number = 0; $number < 3; $number++) {
            $response = $this->ask($headers($number));
            self::assertSame([$row['answer'], $row['metric']], [self::shown($response), [$this->result]]);
            // It is decided for the address of the peer.
            self::assertNotSame($before, $response->getHeaderLine('RateLimit'));
            $before = $response->getHeaderLine('RateLimit');
        }
        self::assertSame([], $this->logged('warning '));
        $this->healthIs($row);
    }

    /** @param Row $row */
    private function stopped(array $row): void
    {
        $this->startRedis();
        $this->publish(1);
        $this->direct($this->redis->port);
        $this->until('mode=store');
        $this->logger->lines = [];
        $this->redis->signal(SIGSTOP);
        $this->isAsThePageSays($row); // And it owes now.
        $began = microtime(true);
        $this->gate->close();
        self::assertLessThan(5.0, microtime(true) - $began); // One, on a quiet machine.
        $this->redis->signal(SIGCONT);
    }

    /**
     * @param Row $row
     * @param callable(): string $at
     */
    private function remote(array $row, callable $at): void
    {
        $this->address = $at();
        $this->gate = Gate::remote(
            $this->address,
            token: 's3cret',
            timeoutMs: 200,
            observer: $this->observe(...),
            logger: $this->logger,
        );
        $this->isAsThePageSays($row);
        if ($this->server !== null) {
            file_put_contents($this->answers, self::PASSED);
            $this->isOver($row);
            unlink($this->answers);
        }
    }
}
