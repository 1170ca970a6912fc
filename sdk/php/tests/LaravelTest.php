<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Limit;
use Illuminate\Cache\Repository;
use Illuminate\Config\Repository as Config;
use Illuminate\Container\Container;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use InvalidArgumentException;
use PHPUnit\Framework\TestCase;
use Sluicegate\Bridge\Laravel\CheckCommand;
use Sluicegate\Bridge\Laravel\Concurrency;
use Sluicegate\Bridge\Laravel\RateLimit;
use Sluicegate\Bridge\Laravel\SluicegateServiceProvider;
use Sluicegate\Bridge\Laravel\ThrottleRequests;
use Sluicegate\Gate;
use Sluicegate\Limit as OwnLimit;
use Sluicegate\Observation;
use Sluicegate\Testing\InMemoryDecider;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;

/**
 * Run on Laravel 8.83.
 */
final class LaravelTest extends TestCase
{
    private ManualClock $clock;
    private RateLimiter $limiter;

    protected function setUp(): void
    {
        $this->clock = new ManualClock();
        $this->limiter = new RateLimiter(new Repository(new ArrayStore()));
    }


    private function through(Gate $gate, mixed ...$arguments): Response
    {
        $request = Request::create('/', 'GET', [], [], [], ['REMOTE_ADDR' => '192.0.2.1']);
        $request->setRouteResolver(static fn (): object => new class {
            public function getDomain(): string
            {
                return 'shop';
            }
        });
        $middleware = new ThrottleRequests($this->limiter, $gate);
        return $middleware->handle($request, static fn (): Response => new Response('ok'), ...$arguments);
    }

    public function testThrottleByNumbersHasLaravelsHeaders(): void
    {
        $gate = InMemoryGate::with($this->clock);
        $response = $this->through($gate, 2, 1);
        self::assertSame(['2', '1'], [
            (string) $response->headers->get('X-RateLimit-Limit'),
            (string) $response->headers->get('X-RateLimit-Remaining'),
        ]);
        $this->through($gate, 2, 1);
        $this->clock->advance(20);
        try {
            $this->through($gate, 2, 1);
            self::fail('no exception');
        } catch (ThrottleRequestsException $e) {
            self::assertSame(429, $e->getStatusCode());
            self::assertSame([2, 0, 46], [
                $e->getHeaders()['X-RateLimit-Limit'],
                $e->getHeaders()['X-RateLimit-Remaining'],
                $e->getHeaders()['Retry-After'],
            ]);
            self::assertEqualsWithDelta(time() + 46, $e->getHeaders()['X-RateLimit-Reset'], 2);
        }
        $this->clock->advance(46);
        self::assertSame(200, $this->through($gate, 2, 1)->getStatusCode());
    }

    public function testNamedLimitsOfOneKeyAreDecidedTogether(): void
    {
        $this->limiter->for('api', static fn (): array => [
            Limit::perMinute(3)->by('u'),
            Limit::perHour(2)->by('u')->response(static fn ($request, array $headers): Response =>
                new Response('slow down', 429, $headers)),
        ]);
        $gate = InMemoryGate::with($this->clock);
        self::assertSame('1', (string) $this->through($gate, 'api')->headers->get('X-RateLimit-Remaining'));
        $this->through($gate, 'api');
        try {
            $this->through($gate, 'api');
            self::fail('no exception');
        } catch (HttpResponseException $e) {
            self::assertSame('slow down', $e->getResponse()->getContent());
        }
        $this->limiter->for('free', static fn (): Limit => Limit::none());
        self::assertNull($this->through($gate, 'free')->headers->get('X-RateLimit-Limit'));
        $this->limiter->for('none', static fn (): Limit => Limit::perMinute(0));
        $this->expectException(ThrottleRequestsException::class);
        $this->through($gate, 'none');
    }

    public function testThrottlesOfOneCallerHoldEachByItself(): void
    {
        RedisServer::shared()->client()->flushAll();
        foreach ([InMemoryGate::with($this->clock), Gates::direct(RedisServer::shared()->port)] as $gate) {
            $passed = [50 => 0, 5 => 0];
            foreach (range(1, 30) as $_) {
                foreach ([[50, 1], [5, 60]] as [$permits, $minutes]) {
                    try {
                        $this->through($gate, $permits, $minutes);
                    } catch (ThrottleRequestsException) {
                        continue;
                    }
                    $passed[$permits]++;
                }
            }
            self::assertSame([50 => 30, 5 => 5], $passed);
        }
    }

    public function testLimitsThatRulesDoNotHaveAreTheLargestThatTheyHave(): void
    {
        $this->limiter->for('some', static fn (): array => [Limit::none(), Limit::perMinute(2)->by('u')]);
        $this->limiter->for('huge', static fn (): Limit => Limit::perMinute(10_000_000_000)->by('u'));
        $gate = InMemoryGate::with($this->clock);
        self::assertSame('1', (string) $this->through($gate, 'some')->headers->get('X-RateLimit-Remaining'));
        self::assertSame('4294967295', (string) $this->through($gate, 'huge')->headers->get('X-RateLimit-Remaining'));
    }

    public function testThrottleThroughRedisIsOneCall(): void
    {
        $redis = RedisServer::shared();
        $gate = Gates::direct($redis->port);
        $this->through($gate, 60, 1);
        $calls = static fn (): int => (int) preg_replace('/^calls=(\d+).*/', '$1', (string)
            ($redis->client()->info('commandstats')['cmdstat_evalsha'] ?? 'calls=0'));
        $before = $calls();
        self::assertSame('58', (string) $this->through($gate, 60, 1)->headers->get('X-RateLimit-Remaining'));
        self::assertSame(1, $calls() - $before);
    }

    public function testTheMiddlewareOfPolicies(): void
    {
        $gate = InMemoryGate::with($this->clock, Fixture::text());
        $request = Request::create('/', 'GET', [], [], [], ['REMOTE_ADDR' => '192.0.2.1']);
        $next = static fn (): Response => new Response('ok');
        $ok = (new RateLimit($gate))->handle($request, $next, 'plain', 'ip');
        self::assertSame('"tries";q=1;w=60', $ok->headers->get('RateLimit-Policy'));
        try {
            (new RateLimit($gate))->handle($request, $next, 'plain', 'ip');
            self::fail('no exception');
        } catch (HttpResponseException $e) {
            self::assertSame(429, $e->getResponse()->getStatusCode());
            self::assertSame('66', $e->getResponse()->headers->get('Retry-After'));
        }
    }

    public function testAnUnknownByIsAMistake(): void
    {
        $gate = InMemoryGate::with($this->clock, Fixture::text());
        $this->expectException(InvalidArgumentException::class);
        $this->expectExceptionMessage('`tenant`');
        (new RateLimit($gate))->handle(new Request(), static fn (): Response => new Response(), 'plain', 'tenant');
    }

    public function testARequestWithoutAnAddressIsRefusedUnlessTheRouteSharesABudget(): void
    {
        $gate = InMemoryGate::with($this->clock, Fixture::text());
        $request = Request::create('/', 'GET', [], [], [], ['REMOTE_ADDR' => '']);
        $next = static fn (): Response => new Response('ok');
        foreach (['ip', 'user'] as $by) {
            try {
                (new RateLimit($gate))->handle($request, $next, 'own', $by);
                self::fail('no exception');
            } catch (HttpResponseException $e) {
                self::assertSame(400, $e->getResponse()->getStatusCode());
                self::assertStringNotContainsString('own', (string) $e->getResponse()->getContent());
            }
            $shared = (new RateLimit($gate))->handle($request, $next, 'own', $by, 'shared');
            self::assertSame(200, $shared->getStatusCode());
        }
        self::assertSame(200, (new RateLimit($gate))->handle($request, $next, 'own', 'all')->getStatusCode());
        $this->expectExceptionMessage('`share`');
        (new RateLimit($gate))->handle($request, $next, 'own', 'ip', 'share');
    }

    /** @return iterable<string, array{array<string, mixed>, string}> */
    public static function settingsThatAreWrong(): iterable
    {
        yield 'unknown' => [['hosts' => 'h'], 'sluicegate.hosts: there is no such setting; expected one of `server`'];
        yield 'a URL' => [
            ['url' => 'redis://:s3cret@h/1'], 'sluicegate.url: redis: `redis://***@h/1` names a database',
        ];
        yield 'a parameter' => [
            ['url' => 'redis://h?read_timeout=5'],
            'sluicegate.url: redis: `redis://h?read_timeout=5` has the unknown parameter `read_timeout`',
        ];
        yield 'a server' => [['server' => 'tcp://u:s3cret@h'], 'sluicegate.server: server: `tcp://***@h` is not a URL'];
        yield 'a number' => [['deadline_ms' => '50ms'], 'sluicegate.deadline_ms: `50ms` is not a whole number'];
        yield 'a port' => [['port' => []], 'sluicegate.port: `array` is not a whole number'];
    }

    /**
     * @dataProvider settingsThatAreWrong
     * @param array<string, mixed> $config
     */
    public function testAWrongSettingIsNamed(array $config, string $message): void
    {
        $app = self::app($config);
        try {
            $app->make(Gate::class);
            self::fail('no exception');
        } catch (InvalidArgumentException $e) {
            self::assertStringStartsWith($message, $e->getMessage());
            self::assertStringNotContainsString('s3cret', $e->getMessage());
        }
    }

    public function testTheProviderConnectsByAUrlAndObserves(): void
    {
        $redis = RedisServer::shared();
        $seen = [];
        $app = self::app([
            'url' => "redis://127.0.0.1:$redis->port?timeout=10", 'deadline_ms' => '10000', 'nodes' => '2',
            'observer' => 'metrics',
        ]);
        $app->instance('metrics', static function (Observation $of) use (&$seen): void {
            $seen[] = "$of->policy {$of->result()}";
        });
        $app->make(Gate::class)->limit('mail', OwnLimit::slidingLog(9, '1h'))->check('a');
        self::assertSame(['mail allowed'], $seen);
    }

    public function testTheCommandFailsWithoutThePoliciesThatAreRequired(): void
    {
        $redis = RedisServer::shared();
        $rules = ['rules' => [['sliding_log' => ['limit' => 2, 'window' => '1h']]]];
        Published::in($redis->client(), 1, ['name' => 'orders'] + $rules, ['name' => 'mail'] + $rules);
        $run = static function (array $required, string ...$more) use ($redis): array {
            $app = self::app(['port' => $redis->port, 'deadline_ms' => 10_000, 'required' => $required]);
            $command = new CheckCommand();
            $command->setLaravel($app);
            $output = new BufferedOutput();
            return [$command->run(new ArrayInput(['policy' => $more]), $output), $output->fetch()];
        };
        self::assertSame([0, "up 127.0.0.1:$redis->port\n"], $run(['orders'], 'mail'));
        [$status, $text] = $run(['orders', 'none'], 'other');
        self::assertSame(1, $status);
        self::assertStringContainsString('unknown policy `none`', $text);
        self::assertStringContainsString('unknown policy `other`', $text);
    }

    /** @param array<string, mixed> $config */
    private static function app(array $config): Container
    {
        $app = new class extends Container {
            public function runningUnitTests(): bool
            {
                return true;
            }
        };
        $app->instance('config', new Config(['sluicegate' => $config]));
        // @phpstan-ignore-next-line: a container is all that the provider needs of an application
        (new SluicegateServiceProvider($app))->register();
        return $app;
    }

    public function testWithoutADecisionThrottleAnswersThatItIsUnavailable(): void
    {
        $gate = Gate::of(new InMemoryDecider([], $this->clock, 0));
        try {
            $this->through($gate, 2, 1);
            self::fail('no exception');
        } catch (HttpResponseException $e) {
            self::assertSame(503, $e->getResponse()->getStatusCode());
            self::assertSame('1', $e->getResponse()->headers->get('Retry-After'));
        }
    }

    public function testTheProviderKeepsPoliciesInACacheStore(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        $app = new Container();
        $config = ['host' => '127.0.0.1', 'port' => $redis->port, 'cache' => 'file', 'deadline_ms' => 10_000];
        $app->instance('config', new Config(['sluicegate' => $config]));
        $cache = new class {
            /** @var array<string, Repository> */
            public array $stores = [];

            public function store(string $name): Repository
            {
                return $this->stores[$name] ??= new Repository(new ArrayStore());
            }
        };
        $app->instance('cache', $cache);
        // @phpstan-ignore-next-line: a container is all that the provider needs of an application
        (new SluicegateServiceProvider($app))->register();
        self::assertSame(1, $app->make(Gate::class)->policy('orders')->check('a')->remaining);
        $stored = (new \ReflectionProperty(ArrayStore::class, 'storage'))->getValue($cache->store('file')->getStore());
        self::assertCount(3, $stored);
    }

    public function testTheProviderRegistersAGateAndTheMiddlewares(): void
    {
        $app = new Container();
        $app->instance('config', new Config(['sluicegate' => ['app' => 'shop']]));
        $router = new class {
            /** @var array<string, string> */
            public array $aliases = [];

            public function aliasMiddleware(string $name, string $class): void
            {
                $this->aliases[$name] = $class;
            }
        };
        $app->instance('router', $router);
        // @phpstan-ignore-next-line: a container is all that the provider needs of an application
        $provider = new SluicegateServiceProvider($app);
        $provider->register();
        $provider->boot();
        self::assertInstanceOf(Gate::class, $app->make(Gate::class));
        self::assertSame([
            'sluicegate' => RateLimit::class, 'sluicegate.concurrency' => Concurrency::class,
            'throttle' => ThrottleRequests::class,
        ], $router->aliases);
    }
}
