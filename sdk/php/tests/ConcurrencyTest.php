<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use Closure;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Request as LaravelRequest;
use Illuminate\Http\Response as LaravelResponse;
use InvalidArgumentException;
use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response as PsrResponse;
use Nyholm\Psr7\ServerRequest;
use Nyholm\Psr7\Stream;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;
use Psr\Http\Server\RequestHandlerInterface;
use ReflectionProperty;
use RuntimeException;
use Sluicegate\Bridge\Laravel\Concurrency;
use Sluicegate\Bridge\Symfony\ConcurrencyListener;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Http\ConcurrencyMiddleware;
use Sluicegate\Http\Key;
use Sluicegate\Http\RequestPermit;
use Sluicegate\Limit;
use Sluicegate\Observation;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Testing\Script;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request as SymfonyRequest;
use Symfony\Component\HttpFoundation\Response as SymfonyResponse;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\HttpKernel;

/**
 * All frameworks hold a permit for the time of a request.
 *
 * @phpstan-type Answer array{status: int, headers: array<string, string>, body: string}
 */
final class ConcurrencyTest extends TestCase
{
    /** @return iterable<string, array{callable(Gate, string, Closure): array<mixed>}> */
    public static function frameworks(): iterable
    {
        yield 'PSR-15' => [self::psr15(...)];
        yield 'Symfony' => [self::symfony(...)];
        yield 'Laravel' => [self::laravel(...)];
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testNoMoreThanTheLimitAreHandledAtOnce(callable $get): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(2, '1m')]);
        $third = [];
        $inner = static function () use ($get, $gate, &$third): string {
            $third = $get($gate, 'jobs', self::fail(...));
            return 'inner';
        };
        $second = [];
        $outer = static function () use ($get, $gate, $inner, &$second): string {
            $second = $get($gate, 'jobs', $inner);
            return 'outer';
        };
        $first = $get($gate, 'jobs', $outer);
        self::assertSame([200, 'outer', '"limit";r=1;t=60'], [
            $first['status'], $first['body'], $first['headers']['ratelimit'],
        ]);
        self::assertSame([200, 'inner', '"limit";r=0;t=60'], [
            $second['status'], $second['body'], $second['headers']['ratelimit'],
        ]);
        self::assertSame([429, 'application/problem+json', '60', '"limit";r=0;t=60'], [
            $third['status'], $third['headers']['content-type'], $third['headers']['retry-after'],
            $third['headers']['ratelimit'],
        ]);
        self::assertSame(['limit'], json_decode($third['body'], true)['violated-policies']);
        self::assertSame(2, $gate->policy('jobs')->peek(null)->remaining);
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testWhatIsOverTheLimitIsAnsweredByThePolicy(callable $get): void
    {
        $gate = InMemoryGate::with(new ManualClock(), Fixture::text());
        $overs = [
            'jobs-seen' => [200, 'work'], 'jobs-old' => [203, 'cached'], 'jobs-tagged' => [429], 'jobs-away' => [429],
        ];
        foreach ($overs as $name => $over) {
            $inner = [];
            $outer = static function () use ($get, $gate, $name, &$inner): string {
                $inner = $get($gate, $name, static function (): string {
                    self::assertCount(1, self::open(), 'in shadow there is nothing to release');
                    return 'work';
                });
                self::assertSame(0, $gate->policy($name)->peek(null)->remaining, 'the first holds its permit');
                return 'outer';
            };
            self::assertSame('outer', $get($gate, $name, $outer)['body']);
            self::assertSame($over, array_slice([$inner['status'], $inner['body']], 0, count($over)), $name);
            self::assertSame(1, $gate->policy($name)->peek(null)->remaining, $name);
        }
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testARequestThatFailsHoldsNothing(callable $get): void
    {
        // The trace of an exception keeps what functions got.
        $before = ini_set('zend.exception_ignore_args', '0');
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(1, '1m')]);
        $jobs = $gate->policy('jobs');
        try {
            $get($gate, 'jobs', static function () use ($jobs): never {
                self::assertSame(0, $jobs->peek(null)->remaining);
                throw new RuntimeException('broken');
            });
            self::fail('no exception');
        } catch (RuntimeException $e) {
            self::assertSame([1, 'broken'], [$jobs->peek(null)->remaining, $e->getMessage()]);
        } finally {
            ini_set('zend.exception_ignore_args', (string) $before);
        }
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testWithoutAnAnswerThePermitIsReleasedByItsId(callable $get): void
    {
        $failures = [
            [new StoreUnavailable('gone', true), 1], [new ServerProblem(502, 'bad gateway'), 1],
            [new StoreUnavailable('gone', false), 0],
        ];
        foreach ($failures as [$why, $releases]) {
            $script = (new Script())->fail($why)->allow(1, 1);
            $answer = $get($script->gate(), 'jobs', self::fail(...));
            self::assertSame([503, '1'], [$answer['status'], $answer['headers']['retry-after']]);
            self::assertSame(1 - $releases, $script->left(), $why->getMessage());
        }
    }

    /**
     * The policy refuses what Redis did not answer in time, although Redis may have granted it.
     *
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testAPermitThatRedisGrantedTooLateIsReleased(callable $get): void
    {
        $redis = RedisServer::shared();
        $client = $redis->client();
        $client->flushAll();
        Published::in($client, 1, ['name' => 'jobs', 'on_store_failure' => 'deny', 'rules' => [
            ['concurrency' => ['limit' => 1, 'ttl' => '1m']],
        ]]);
        $proxy = new Proxy($redis->port);
        $gate = Gates::direct($proxy->port, deadlineMs: 1000);
        self::assertSame(200, $get($gate, 'jobs', static fn (): string => 'work')['status']);
        $proxy->loseNextReply();
        self::assertSame(503, $get($gate, 'jobs', self::fail(...))['status']);
        self::assertSame(1, Gates::direct($redis->port)->policy('jobs')->peek(null)->remaining);
    }

    /**
     * Without an `id` nobody else knows the permit.
     *
     * @testWith ["deny"]
     *           ["local"]
     */
    public function testAnAcquireThatRedisGrantedTooLateHoldsNothing(string $onStoreFailure): void
    {
        $redis = RedisServer::shared();
        $client = $redis->client();
        $client->flushAll();
        Published::in($client, 1, ['name' => 'jobs', 'on_store_failure' => $onStoreFailure, 'rules' => [
            ['concurrency' => ['limit' => 1, 'ttl' => '1m']],
        ]]);
        $proxy = new Proxy($redis->port);
        $jobs = Gates::direct($proxy->port, deadlineMs: 1000)->policy('jobs');
        $jobs->acquire(null)->release();
        $proxy->loseNextReply();
        $permit = $jobs->acquire(null);
        self::assertSame($onStoreFailure, $permit->decision->mode->value);
        self::assertSame($onStoreFailure === 'local', $permit->isHeld());
        $permit->release();
        self::assertSame(1, Gates::direct($redis->port)->policy('jobs')->peek(null)->remaining);
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testTenThousandRequestsLeaveNothingHeld(callable $get): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(3, '1m')]);
        [$statuses, $before] = [[], 0];
        for ($number = 0; $number < 10_000; $number++) {
            try {
                $status = $get($gate, 'jobs', static function () use ($get, $gate, $number): string {
                    for ($more = $number % 4; $more > 0; $more--) {
                        $get($gate, 'jobs', static fn (): string => 'inner');
                    }
                    return $number % 10 === 7 ? throw new RuntimeException('broken') : 'work';
                })['status'];
            } catch (RuntimeException) {
                $status = 500;
            }
            $statuses[$status] = ($statuses[$status] ?? 0) + 1;
            $before = $number === 100 ? memory_get_usage() : $before;
        }
        self::assertSame([200 => 9000, 500 => 1000], $statuses);
        self::assertSame(3, $gate->policy('jobs')->peek(null)->remaining);
        self::assertCount(0, self::open());
        self::assertLessThan(500_000, memory_get_usage() - $before, 'a process does not collect anything');
    }

    /**
     * @dataProvider frameworks
     * @param callable(Gate, string, Closure): Answer $get
     */
    public function testAMistakeIsThrownAndHoldsNothing(callable $get): void
    {
        $observed = [];
        // Nobody is asked.
        $gate = Gate::remote('http://127.0.0.1:1', observer: static function (Observation $of) use (&$observed): void {
            $observed[] = "$of->verb {$of->errorName()}";
        });
        self::assertSame(503, $get($gate, 'jobs', self::fail(...))['status']);
        try {
            $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::slidingLog(1, '1m')]);
            $get($gate, 'jobs', self::fail(...));
            self::fail('no error');
        } catch (InvalidRequest $e) {
            self::assertSame('unsupported_verb', $e->errorName);
        }
        self::assertSame(['acquire not_charged'], $observed);
    }

    /** @return iterable<string, array{Closure(ResponseInterface): mixed}> */
    public static function ends(): iterable
    {
        yield 'it is read' => [static function (ResponseInterface $response): void {
            while (!$response->getBody()->eof()) {
                $response->getBody()->read(1);
            }
        }];
        yield 'its rest is read' => [static fn (ResponseInterface $of): string => $of->getBody()->getContents()];
        yield 'it is a text' => [static fn (ResponseInterface $of): string => (string) $of->getBody()];
        yield 'it is closed' => [static fn (ResponseInterface $of) => $of->getBody()->close()];
    }

    /**
     * @dataProvider ends
     * @param Closure(ResponseInterface): mixed $end
     */
    public function testABodyThatIsProducedLaterHoldsThePermitToItsEnd(Closure $end): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(1, '1m')]);
        $jobs = $gate->policy('jobs');
        $response = self::response($gate, self::later());
        self::assertSame('l', $response->getBody()->read(1));
        self::assertSame(0, $jobs->peek(null)->remaining);
        $end($response);
        self::assertSame(1, $jobs->peek(null)->remaining);
        // A body that nobody reads, as that of a HEAD, or of a client that is gone.
        $response = self::response($gate, self::later());
        self::assertSame(0, $jobs->peek(null)->remaining);
        unset($response);
        self::assertSame(1, $jobs->peek(null)->remaining);
    }

    public function testABodyOfAKnownSizeEndsThere(): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(1, '1m')]);
        $jobs = $gate->policy('jobs');
        $response = self::response($gate, Stream::create('work'));
        $response->getBody()->rewind();
        self::assertSame(['wo', 4], [$response->getBody()->read(2), $response->getBody()->getSize()]);
        self::assertSame(0, $jobs->peek(null)->remaining);
        self::assertSame('rk', $response->getBody()->read(2));
        self::assertSame(1, $jobs->peek(null)->remaining);
        // No body has nothing to wait for.
        $response = self::response($gate, Stream::create(''));
        self::assertSame(1, $jobs->peek(null)->remaining);
        // What is detached can still be read.
        $response = self::response($gate, self::later());
        $resource = $response->getBody()->detach();
        self::assertSame(0, $jobs->peek(null)->remaining);
        self::assertSame('later', stream_get_contents($resource));
        unset($response);
        self::assertSame(1, $jobs->peek(null)->remaining);
    }

    public function testTheOptionsOfTheMiddleware(): void
    {
        $clock = new ManualClock();
        $gate = InMemoryGate::with($clock, ['jobs' => Limit::concurrency(3, '1m')]);
        $make = static fn (Gate $gate, mixed ...$options): ConcurrencyMiddleware =>
            new ConcurrencyMiddleware($gate->policy('jobs'), Key::shared(), new Psr17Factory(), ...$options);
        $request = new ServerRequest('GET', '/');
        $held = $make($gate, cost: 2, oldHeaders: true)->process($request, self::handler(static fn (): string => 'ok'));
        self::assertSame(['3', '1'], [
            $held->getHeaderLine('X-RateLimit-Limit'), $held->getHeaderLine('X-RateLimit-Remaining'),
        ]);
        $fallback = static fn (Decision $of, mixed ...$more): ?ResponseInterface =>
            $of->heldUs > 0 ? new PsrResponse(203) : null;
        $limited = $make($gate, cost: 2, fallback: $fallback);
        self::assertSame(429, $limited->process($request, self::handler(self::fail(...)))->getStatusCode());
        $waits = $make($gate, cost: 2, fallback: $fallback, maxWaitUs: 20_000_000);
        self::assertSame(203, $waits->process($request, self::handler(self::fail(...)))->getStatusCode());
        $waits = $make($gate, cost: 2, maxWaitUs: 50_000_000);
        self::assertSame(200, $waits->process($request, self::handler(static fn (): string => 'ok'))->getStatusCode());
        // While a server is away, requests pass if they may, and release what they perhaps hold at their end.
        $script = (new Script())->fail(new StoreUnavailable('gone', true))->allow(1, 1);
        $passes = $make($script->gate(), passUnavailable: true);
        $response = $passes->process($request, self::handler(static fn (): string => 'ok'));
        self::assertSame([1, 'ok', 0], [$script->left(), (string) $response->getBody(), $script->left()]);
    }

    public function testSymfonyHoldsThePermitUntilTheResponseWasSent(): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['jobs' => Limit::concurrency(1, '1m')]);
        $jobs = $gate->policy('jobs');
        $events = new EventDispatcher();
        $kernel = self::kernel($gate, 'jobs', $events);
        $request = self::symfonyRequest(static fn (): SymfonyResponse => new StreamedResponse(
            static function () use ($jobs): void {
                echo $jobs->peek(null)->remaining;
            },
        ));
        // A cache of Symfony asks with a copy of the request, and terminates with its own.
        $response = $kernel->handle(clone $request);
        ob_start();
        $response->send();
        self::assertSame('0', ob_get_clean());
        $kernel->terminate($request, $response);
        self::assertSame(1, $jobs->peek(null)->remaining);
        // A response that another listener makes is that of the request.
        $events->addListener('kernel.response', static function (ResponseEvent $event): void {
            $event->setResponse(new SymfonyResponse('other'));
        }, -1000);
        $response = $kernel->handle($request);
        self::assertSame([0, 'other'], [$jobs->peek(null)->remaining, $response->getContent()]);
        $kernel->terminate($request, $response);
        self::assertSame(1, $jobs->peek(null)->remaining);
        $failing = self::symfonyRequest(static fn () => throw new RuntimeException('broken'));
        try {
            $kernel->handle($failing);
            self::fail('no exception');
        } catch (RuntimeException) {
            self::assertSame(1, $jobs->peek(null)->remaining, 'nothing answers it');
        }
        // A response to an exception is one as well.
        $events->addListener('kernel.exception', static function (ExceptionEvent $event): void {
            $event->setResponse(new SymfonyResponse('broken', 500));
        });
        $response = $kernel->handle($failing);
        self::assertSame(0, $jobs->peek(null)->remaining);
        $kernel->terminate($failing, $response);
        self::assertSame(1, $jobs->peek(null)->remaining);
        // A program that does not terminate the kernel has it until the response is gone.
        $response = $kernel->handle($request);
        self::assertSame(0, $jobs->peek(null)->remaining);
        unset($response);
        self::assertSame(1, $jobs->peek(null)->remaining);
    }

    public function testLaravelHoldsThePermitsUntilTheResponseWasSent(): void
    {
        $limit = Limit::concurrency(1, '1m');
        $gate = InMemoryGate::with($clock = new ManualClock(), ['jobs' => $limit, 'more' => $limit]);
        $left = static fn (): array => [
            $gate->policy('jobs')->peek(null)->remaining, $gate->policy('more')->peek(null)->remaining,
        ];
        $request = LaravelRequest::create('/orders');
        $ok = static fn (): LaravelResponse => new LaravelResponse('ok');
        $inner = static fn (LaravelRequest $of): SymfonyResponse =>
            (new Concurrency($gate))->handle($of, $ok, 'more', 'all');
        $response = (new Concurrency($gate))->handle($request, $inner, 'jobs', 'all');
        self::assertSame([0, 0], $left());
        // Laravel makes the middleware anew.
        (new Concurrency($gate))->terminate($request, $response);
        self::assertSame([1, 1], $left());
        // A response that is thrown is sent, too.
        try {
            $thrown = static fn () => throw new HttpResponseException($response);
            (new Concurrency($gate))->handle($request, $thrown, 'jobs');
            self::fail('no exception');
        } catch (HttpResponseException) {
            self::assertSame(0, $gate->policy('jobs')->peek('127.0.0.1')->remaining);
        }
        (new Concurrency($gate))->terminate($request, $response);
        self::assertSame(1, $gate->policy('jobs')->peek('127.0.0.1')->remaining);
        // A request that is not terminated has it until it is gone.
        (new Concurrency($gate))->handle($request, $ok, 'jobs', 'all');
        self::assertSame([0, 1], $left());
        $begin = $clock->nowUs();
        try {
            (new Concurrency($gate))->handle(clone $request, $ok, 'jobs', 'all', '', '5');
            self::fail('no exception');
        } catch (HttpResponseException $e) {
            self::assertSame([429, 5000], [$e->getResponse()->getStatusCode(), $clock->nowUs() - $begin]);
        }
        unset($request, $e);
        self::assertSame([1, 1], $left());
        foreach (['-1', '5s', '31622400001'] as $wait) {
            try {
                (new Concurrency($gate))->handle(LaravelRequest::create('/'), $ok, 'jobs', 'all', '', $wait);
                self::fail('no exception');
            } catch (InvalidArgumentException $e) {
                $problem = "sluicegate.concurrency: `$wait` is not a wait of 0 to 31622400000 ms";
                self::assertSame($problem, $e->getMessage());
            }
        }
    }

    /** @return Answer */
    private static function psr15(Gate $gate, string $policy, Closure $work): array
    {
        $middleware = new ConcurrencyMiddleware($gate->policy($policy), Key::shared(), new Psr17Factory());
        $response = $middleware->process(new ServerRequest('GET', '/'), self::handler($work));
        $fields = array_map(static fn (array $values): string => implode(', ', $values), $response->getHeaders());
        return [
            'status' => $response->getStatusCode(),
            'headers' => array_change_key_case($fields),
            'body' => (string) $response->getBody(),
        ];
    }

    /** @return Answer */
    private static function symfony(Gate $gate, string $policy, Closure $work): array
    {
        $kernel = self::kernel($gate, $policy);
        $request = self::symfonyRequest(static fn (): SymfonyResponse => new SymfonyResponse($work()));
        $response = $kernel->handle($request);
        $answer = self::answer($response);
        $kernel->terminate($request, $response);
        return $answer;
    }

    /** @return Answer */
    private static function laravel(Gate $gate, string $policy, Closure $work): array
    {
        $request = LaravelRequest::create('/orders');
        $next = static fn (): LaravelResponse => new LaravelResponse($work());
        try {
            $response = (new Concurrency($gate))->handle($request, $next, $policy, 'all');
        } catch (HttpResponseException $e) {
            $response = $e->getResponse();
        }
        $answer = self::answer($response);
        (new Concurrency($gate))->terminate($request, $response);
        return $answer;
    }

    private static function kernel(Gate $gate, string $policy, ?EventDispatcher $events = null): HttpKernel
    {
        $events ??= new EventDispatcher();
        $events->addSubscriber(new ConcurrencyListener([['^/', $gate->policy($policy), 'all', false]]));
        return new HttpKernel($events, new ControllerResolver());
    }

    private static function symfonyRequest(Closure $controller): SymfonyRequest
    {
        $request = SymfonyRequest::create('/orders');
        $request->attributes->set('_controller', $controller);
        return $request;
    }

    private static function response(Gate $gate, StreamInterface $body): ResponseInterface
    {
        $middleware = new ConcurrencyMiddleware($gate->policy('jobs'), Key::shared(), new Psr17Factory());
        return $middleware->process(new ServerRequest('GET', '/'), self::handler(static fn () => $body));
    }

    /** @return array<string, mixed> the permits that are to be released */
    private static function open(): array
    {
        return (new ReflectionProperty(RequestPermit::class, 'open'))->getValue();
    }

    /** A body of unknown size: of a socket, PHP returns 0. */
    private static function later(): StreamInterface
    {
        [$read, $write] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) ?: self::fail('sockets');
        fwrite($write, 'later');
        fclose($write);
        return Stream::create($read);
    }

    private static function handler(Closure $work): RequestHandlerInterface
    {
        return new class ($work) implements RequestHandlerInterface {
            public function __construct(private readonly Closure $work)
            {
            }

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return new PsrResponse(200, [], ($this->work)());
            }
        };
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
