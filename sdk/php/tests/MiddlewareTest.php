<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Request as LaravelRequest;
use Illuminate\Http\Response as LaravelResponse;
use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response as PsrResponse;
use Nyholm\Psr7\ServerRequest;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Bridge\Laravel\RateLimit;
use Sluicegate\Bridge\Symfony\RateLimitListener;
use Sluicegate\Gate;
use Sluicegate\Http\Key;
use Sluicegate\Http\RateLimitMiddleware;
use Sluicegate\Observation;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request as SymfonyRequest;
use Symfony\Component\HttpFoundation\Response as SymfonyResponse;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\HttpKernel;

/**
 * All frameworks answer the same.
 *
 * @phpstan-type Answer array{status: int, headers: array<string, string>, body: string}
 */
final class MiddlewareTest extends TestCase
{
    private const PEER = '192.0.2.1';
    private const PROXY = '10.0.0.1';

    protected function tearDown(): void
    {
        SymfonyRequest::setTrustedProxies([], SymfonyRequest::HEADER_X_FORWARDED_FOR);
    }

    /** @return iterable<string, array{callable(Gate, string, string, array<string, string>): array<mixed>}> */
    public static function frameworks(): iterable
    {
        yield 'PSR-15' => [self::psr15(...)];
        yield 'Symfony' => [self::symfony(...)];
        yield 'Laravel' => [self::laravel(...)];
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, string, array<string, string>): Answer $get
     */
    public function testAllAnswerTheSame(callable $get): void
    {
        $gate = InMemoryGate::with(new ManualClock(), Fixture::text());
        $first = $get($gate, 'plain', self::PEER, []);
        self::assertSame([200, 'ok', '"tries";q=1;w=60', '"tries";r=0;t=66', null], [
            $first['status'], $first['body'], $first['headers']['ratelimit-policy'], $first['headers']['ratelimit'],
            $first['headers']['retry-after'] ?? null,
        ]);
        $refused = $get($gate, 'plain', self::PEER, []);
        self::assertSame([429, 'application/problem+json', '66', '"tries";r=0;t=66'], [
            $refused['status'], $refused['headers']['content-type'], $refused['headers']['retry-after'],
            $refused['headers']['ratelimit'],
        ]);
        self::assertSame([
            'type' => 'https://iana.org/assignments/http-problem-types#quota-exceeded',
            'title' => 'Request cannot be satisfied as assigned quota has been exceeded',
            'status' => 429,
            'detail' => 'retry in 66 s',
            'violated-policies' => ['tries'],
        ], json_decode($refused['body'], true));
        // Who is no proxy that is trusted says nothing about its address.
        $spoofed = $get($gate, 'plain', self::PEER, ['X-Forwarded-For' => '203.0.113.9']);
        self::assertSame(429, $spoofed['status']);
        $proxied = $get($gate, 'plain', self::PROXY, ['X-Forwarded-For' => '198.51.100.7, ' . self::PEER]);
        self::assertSame(429, $proxied['status']);
        self::assertSame(200, $get($gate, 'plain', self::PROXY, ['X-Forwarded-For' => '203.0.113.9'])['status']);
        // An address of IPv6 counts by its first 64 bits.
        self::assertSame(200, $get($gate, 'plain', '2001:db8::1', [])['status']);
        self::assertSame(429, $get($gate, 'plain', '2001:db8::ffff:2', [])['status']);
        $overs = ['seen' => [200, 'ok'], 'old' => [203, 'cached'], 'tagged' => [429], 'other' => [429]];
        foreach ($overs as $name => $over) {
            self::assertSame(200, $get($gate, $name, self::PEER, [])['status'], $name);
            $answer = $get($gate, $name, self::PEER, []);
            self::assertSame($over, array_slice([$answer['status'], $answer['body']], 0, count($over)), $name);
            self::assertSame('"tries";r=0;t=66', $answer['headers']['ratelimit'], $name);
        }
        self::assertSame('cache', $get($gate, 'old', self::PEER, [])['headers']['x-from']);
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, string, array<string, string>): Answer $get
     */
    public function testWithoutRedisAPolicyThatDeniesIsReducedCapacity(callable $get): void
    {
        RedisServer::require();
        $redis = new RedisServer();
        Published::in($redis->client(), 1, Fixture::record('deny'));
        $gate = Gates::direct($redis->port);
        self::assertSame(200, $get($gate, 'deny', self::PEER, [])['status']);
        $redis->stop();
        $odd = new HttpServer(__DIR__ . '/Support/odd.php', ['STATUS' => '502', 'BODY' => 'bad gateway']);
        $unavailable = [
            // The policy says it; of this one nothing is known; and here a balancer answers for the server.
            'deny' => $get($gate, 'deny', '192.0.2.2', []), 'none' => $get($gate, 'none', self::PEER, []),
            'odd' => $get(Gates::remote($odd->url), 'deny', self::PEER, []),
        ];
        foreach ($unavailable as $name => $answer) {
            self::assertSame([503, 'application/problem+json', '1'], [
                $answer['status'], $answer['headers']['content-type'], $answer['headers']['retry-after'],
            ], $name);
            self::assertSame([
                'type' => 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
                'title' => 'Request cannot be satisfied due to temporary server capacity constraints',
                'status' => 503,
                'detail' => 'retry in 1 s',
            ], json_decode($answer['body'], true), $name);
        }
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, string, array<string, string>): Answer $get
     */
    public function testWhereNothingIsPublishedIsReducedCapacityAndNamesNoPolicy(callable $get): void
    {
        $answer = $get(Gates::direct(RedisServer::shared()->port), 'orders', self::PEER, []);
        self::assertSame([503, 'application/problem+json', '1'], [
            $answer['status'], $answer['headers']['content-type'], $answer['headers']['retry-after'],
        ]);
        self::assertDoesNotMatchRegularExpression('/orders|publish|127\.0/', $answer['body']);
    }

    /** An empty Redis is no outage that passes. */
    public function testWhereNothingIsPublishedNothingPasses(): void
    {
        $orders = Gates::direct(RedisServer::shared()->port)->policy('orders');
        $factory = new Psr17Factory();
        $middleware = new RateLimitMiddleware($orders, Key::shared(), $factory, passUnavailable: true);
        $handler = $this->createStub(RequestHandlerInterface::class);
        self::assertSame(503, $middleware->process(new ServerRequest('GET', '/'), $handler)->getStatusCode());
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, string, array<string, string>): Answer $get
     */
    public function testAnObserverHearsOfARequestWithoutItsKey(callable $get): void
    {
        $observed = [];
        // Nobody is asked.
        $gate = Gates::remote('http://127.0.0.1:1', observer: static function (Observation $of) use (&$observed): void {
            $observed[] = [$of->policy, $of->verb, $of->result(), $of->errorName(), $of->mode()];
        });
        self::assertSame(400, $get($gate, 'plain', '', [])['status']);
        self::assertSame([['plain', 'check', 'error', 'key_empty', '']], $observed);
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, string, array<string, string>): Answer $get
     */
    public function testARequestWithoutAnAddressIsABadRequest(callable $get): void
    {
        $gate = InMemoryGate::with(new ManualClock(), Fixture::text());
        $answer = $get($gate, 'plain', '', []);
        self::assertSame([400, 'application/problem+json'], [$answer['status'], $answer['headers']['content-type']]);
        self::assertStringContainsString('"detail":"address: is missing"', $answer['body']);
        // Ports behind the addresses of a proxy do not make clients one.
        foreach (['198.18.0.1:401', '198.18.0.2:402', '[2001:db8:1::1]:403'] as $address) {
            $proxied = $get($gate, 'plain', self::PROXY, ['X-Forwarded-For' => $address]);
            self::assertSame(200, $proxied['status'], $address);
        }
        self::assertSame(429, $get($gate, 'plain', self::PROXY, ['X-Forwarded-For' => '198.18.0.1:999'])['status']);
    }

    /**
     * @param array<string, string> $headers
     * @return Answer
     */
    private static function psr15(Gate $gate, string $policy, string $peer, array $headers): array
    {
        $key = Key::remoteIp(trusted: ['10.0.0.0/8']);
        $middleware = new RateLimitMiddleware($gate->policy($policy), $key, new Psr17Factory());
        $request = new ServerRequest('GET', '/', $headers, null, '1.1', ['REMOTE_ADDR' => $peer]);
        $response = $middleware->process($request, new class implements RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return new PsrResponse(200, [], 'ok');
            }
        });
        $fields = array_map(static fn (array $values): string => implode(', ', $values), $response->getHeaders());
        return [
            'status' => $response->getStatusCode(),
            'headers' => array_change_key_case($fields),
            'body' => (string) $response->getBody(),
        ];
    }

    /**
     * @param array<string, string> $headers
     * @return Answer
     */
    private static function symfony(Gate $gate, string $policy, string $peer, array $headers): array
    {
        SymfonyRequest::setTrustedProxies(['10.0.0.0/8'], SymfonyRequest::HEADER_X_FORWARDED_FOR);
        $events = new EventDispatcher();
        $events->addSubscriber(new RateLimitListener([
            ['^/other', $gate->policy('unasked'), 'all', false], ['^/', $gate->policy($policy), 'address', false],
        ]));
        $request = SymfonyRequest::create('/orders', server: ['REMOTE_ADDR' => $peer]);
        $request->headers->add($headers);
        $request->attributes->set('_controller', static fn (): SymfonyResponse => new SymfonyResponse('ok'));
        return self::answer((new HttpKernel($events, new ControllerResolver()))->handle($request));
    }

    /**
     * @param array<string, string> $headers
     * @return Answer
     */
    private static function laravel(Gate $gate, string $policy, string $peer, array $headers): array
    {
        LaravelRequest::setTrustedProxies(['10.0.0.0/8'], LaravelRequest::HEADER_X_FORWARDED_FOR);
        $request = LaravelRequest::create('/orders', 'GET', [], [], [], ['REMOTE_ADDR' => $peer]);
        $request->headers->add($headers);
        try {
            return self::answer((new RateLimit($gate))->handle(
                $request,
                static fn (): LaravelResponse => new LaravelResponse('ok'),
                $policy,
                'ip',
            ));
        } catch (HttpResponseException $e) {
            return self::answer($e->getResponse());
        }
    }

    /** @return Answer */
    private static function answer(SymfonyResponse $response): array
    {
        return [
            'status' => $response->getStatusCode(),
            'headers' => array_map(static fn (array $values): string => (string) $values[0], $response->headers->all()),
            'body' => (string) $response->getContent(),
        ];
    }
}
