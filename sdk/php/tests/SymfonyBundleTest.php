<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use InvalidArgumentException;
use PHPUnit\Framework\TestCase;
use Sluicegate\Bridge\Symfony\CheckCommand;
use Sluicegate\Bridge\Symfony\ConcurrencyListener;
use Sluicegate\Bridge\Symfony\PolicyWarmer;
use Sluicegate\Bridge\Symfony\RateLimitListener;
use Sluicegate\Bridge\Symfony\SluicegateBundle;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Limit;
use Sluicegate\Memory\Apcu;
use Sluicegate\Mode;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Metrics;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;
use Sluicegate\Tests\Support\Symfony7Consumer;
use Sluicegate\Tests\Support\SymfonyConsumer;
use Symfony\Component\Cache\Adapter\ArrayAdapter;
use Symfony\Component\Cache\Psr16Cache;
use Symfony\Component\Config\Definition\Exception\InvalidConfigurationException;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\Dumper\PhpDumper;
use Symfony\Component\DependencyInjection\Reference;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;
use Symfony\Component\Yaml\Yaml;

/**
 * Builds containers with the bundle, on Symfony 5.4.
 */
final class SymfonyBundleTest extends TestCase
{
    protected function setUp(): void
    {
        !Apcu::isAvailable() ?: apcu_clear_cache();
    }

    public function testLimitersOfTheConfigurationDecideInRedis(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'apps' => ['shop'], 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        putenv("SG_TEST_REDIS=redis://127.0.0.1:$redis->port");
        $_ENV['SG_TEST_REDIS'] = (string) getenv('SG_TEST_REDIS');
        $container = self::container(<<<'YAML'
            redis: '%env(SG_TEST_REDIS)%'
            app: shop
            deadline_ms: 10000
            limiters:
                api: orders
                sign-up:
                    rules: [ { name: first, fixed_window: { limit: 3, window: 1h, align: first } } ]
                    on_store_failure: deny
            YAML);
        $user = $container->get(SymfonyConsumer::class);
        self::assertSame([true, 1, 2], self::summary($user->byId->create('alice')));
        self::assertSame([true, 0, 2], self::summary($user->apiLimiter->create('alice')));
        self::assertSame([false, 0, 2], self::summary($user->byId->create('alice')));
        self::assertSame([true, 1, 2], self::summary($user->byId->create('bob')));
        $decision = $user->signUpLimiter->check('bob');
        self::assertSame([2, 'first', Mode::Store], [$decision->remaining, $decision->rule, $decision->mode]);
        self::assertSame(1, $user->gate->policy('orders')->peek('bob')->remaining);
    }

    public function testWithoutRedisALimiterDecidesAsItSays(): void
    {
        $container = self::container(<<<'YAML'
            redis: redis://127.0.0.1:1
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/s, burst: 2 } } ] }
                sign-up: { rules: [ { token_bucket: { rate: 1/s, burst: 2 } } ], on_store_failure: deny }
            YAML);
        $user = $container->get(SymfonyConsumer::class);
        self::assertTrue($user->byId->create('a')->consume()->isAccepted());
        self::assertSame(Mode::Deny, $user->signUpLimiter->check('a')->mode);
    }

    public function testARunnerOfTheProgramIsUsed(): void
    {
        $redis = RedisServer::shared();
        $container = self::container(<<<'YAML'
            runner: app.runner
            deadline_ms: 10000
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/h, burst: 2 } } ] }
                sign-up: { rules: [ { token_bucket: { rate: 1/h, burst: 2 } } ] }
            YAML, static fn (ContainerBuilder $builder) => $builder->register('app.runner', PhpRedis::class)
                ->setFactory([PhpRedis::class, 'connect'])->setArguments(['127.0.0.1', $redis->port, null, 10.0]));
        self::assertSame([true, 1, 2], self::summary($container->get(SymfonyConsumer::class)->byId->create('a')));
        self::assertGreaterThan(0, $redis->client()->dbSize());
    }

    public function testAServerDecidesInstead(): void
    {
        Server::require();
        $server = new Server([['name' => 'orders', 'rules' => [['sliding_log' => ['limit' => 2, 'window' => '1h']]]]]);
        $container = self::container(<<<YAML
            server: http://{$server->address('http')}
            timeout_ms: 10000
            limiters: { api: orders, sign-up: orders }
            YAML);
        $limiter = $container->get(SymfonyConsumer::class)->byId->create('a');
        self::assertSame([true, 1, 2], self::summary($limiter));
        self::assertSame([true, 0, 2], self::summary($limiter));
        self::assertSame([false, 0, 2], self::summary($limiter));
    }

    public function testACacheAndAClockOfTheProgramAreUsed(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        $services = static function (ContainerBuilder $builder): void {
            $builder->register('app.pool', ArrayAdapter::class);
            $builder->register('app.cache', Psr16Cache::class)->addArgument(new Reference('app.pool'))
                ->setPublic(true);
            $builder->register('app.clock', ManualClock::class);
        };
        $container = self::container(<<<YAML
            redis: redis://127.0.0.1:$redis->port
            cache: app.cache
            deadline_ms: 10000
            clock: app.clock
            limiters: { api: orders, sign-up: orders }
            YAML, $services);
        self::assertSame([true, 1, 2], self::summary($container->get(SymfonyConsumer::class)->byId->create('a')));
        $values = (new \ReflectionProperty(Psr16Cache::class, 'pool'))->getValue($container->get('app.cache'));
        self::assertCount(3, $values->getValues());
    }

    public function testRequestsOfTheConfigurationAreLimited(): void
    {
        $container = self::container(<<<'YAML'
            redis: redis://127.0.0.1:1
            requests:
                - { path: ^/api/, limiter: api }
                - { path: ^/sign-up$, limiter: sign-up, key: header:X-Tenant }
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/h, burst: 1 } } ], on_store_failure: deny }
                sign-up: { rules: [ { token_bucket: { rate: 1/h, burst: 1 } } ] }
            YAML, static fn (ContainerBuilder $builder) => $builder
                ->setAlias('listener', RateLimitListener::class)->setPublic(true));
        $events = new EventDispatcher();
        $events->addSubscriber($container->get('listener'));
        $kernel = new HttpKernel($events, new ControllerResolver());
        $get = static function (string $path, string $tenant = '0') use ($kernel): int {
            $request = Request::create($path, server: ['HTTP_X_TENANT' => $tenant]);
            $request->attributes->set('_controller', static fn (): Response => new Response('ok'));
            return $kernel->handle($request)->getStatusCode();
        };
        self::assertSame([503, 200, 200, 429, 200], [
            $get('/api/orders'), $get('/'), $get('/sign-up'), $get('/sign-up'), $get('/sign-up', '1'),
        ]);
        // As the router reads it.
        self::assertSame([503, 429], [$get('/%61pi/orders'), $get('/sign%2dup')]);
        // A proxy that adds the true field behind that of the client is not passed by.
        $twice = Request::create('/sign-up');
        $twice->headers->set('X-Tenant', ['forged', 'real']);
        $twice->attributes->set('_controller', static fn (): Response => new Response('ok'));
        self::assertSame(400, $kernel->handle($twice)->getStatusCode());
    }

    public function testARequestWithoutItsKeyIsRefusedUnlessTheConfigurationSharesABudget(): void
    {
        $container = self::container(<<<'YAML'
            redis: redis://127.0.0.1:1
            requests:
                - { path: ^/one, limiter: api, key: header:X-Tenant }
                - { path: ^/all, limiter: api, key: header:X-Tenant, shared: true }
                - { path: ^/address, limiter: api }
                - { path: ^/nobody, limiter: api, shared: true }
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/h, burst: 9 } } ] }
                sign-up: { rules: [ { token_bucket: { rate: 1/h, burst: 1 } } ] }
            YAML, static fn (ContainerBuilder $builder) => $builder
                ->setAlias('listener', RateLimitListener::class)->setPublic(true));
        $events = new EventDispatcher();
        $events->addSubscriber($container->get('listener'));
        $kernel = new HttpKernel($events, new ControllerResolver());
        $get = static function (string $path, array $server = ['REMOTE_ADDR' => '']) use ($kernel): int {
            $request = Request::create($path, server: $server);
            $request->attributes->set('_controller', static fn (): Response => new Response('ok'));
            return $kernel->handle($request)->getStatusCode();
        };
        self::assertSame([400, 200, 400, 200], [$get('/one'), $get('/all'), $get('/address'), $get('/nobody')]);
        self::assertSame(200, $get('/one', ['HTTP_X_TENANT' => 'shop']));
        self::assertSame(200, $get('/address', ['REMOTE_ADDR' => '192.0.2.1']));
    }

    public function testTheConfigurationLimitsRequestsAtOnce(): void
    {
        Server::require();
        $server = new Server([[
            'name' => 'jobs', 'rules' => [['concurrency' => ['limit' => 1, 'ttl' => '5m', 'queue' => 5]]],
        ]]);
        $container = self::container(<<<YAML
            server: http://{$server->address('http')}
            timeout_ms: 10000
            concurrency:
                - { path: ^/wait, limiter: api, key: all, max_wait_ms: 40 }
                - { path: ^/jobs, limiter: api, key: header:X-Tenant, shared: true }
                - { limiter: api }
            limiters: { api: jobs, sign-up: jobs }
            YAML, static fn (ContainerBuilder $builder) => $builder
                ->setAlias('listener', ConcurrencyListener::class)->setPublic(true));
        $events = new EventDispatcher();
        $events->addSubscriber($container->get('listener'));
        $kernel = new HttpKernel($events, new ControllerResolver());
        $get = static function (string $path, array $server = []) use ($kernel): array {
            $request = Request::create($path, server: $server);
            $request->attributes->set('_controller', static fn (): Response => new Response('ok'));
            return [$kernel->handle($request), $request];
        };
        [$held, $request] = $get('/jobs');
        // An address and a tenant have a place of their own.
        [$ofAddress, $ofTenant] = [$get('/')[0], $get('/jobs', ['HTTP_X_TENANT' => 'shop'])[0]];
        [$refused, $waiting] = $get('/wait');
        self::assertSame(
            [200, 200, 200, 429],
            array_map(static fn (Response $of): int => $of->getStatusCode(), [$held, $ofAddress, $ofTenant, $refused]),
        );
        self::assertSame(40_000, $waiting->attributes->get('sluicegate.concurrency')->heldUs);
        $kernel->terminate($request, $held);
        [$passed] = $get('/wait');
        self::assertSame(200, $passed->getStatusCode());
    }

    public function testAnObserverOfTheConfigurationSeesRequests(): void
    {
        $services = static function (ContainerBuilder $builder): void {
            $builder->register('app.metrics', Metrics::class)->setPublic(true);
            $builder->setAlias('listener', RateLimitListener::class)->setPublic(true);
        };
        $container = self::container(<<<'YAML'
            redis: redis://127.0.0.1:1
            observer: app.metrics
            requests: [ { limiter: api } ]
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/h, burst: 2 } } ] }
                sign-up: orders
            YAML, $services);
        $container->get(SymfonyConsumer::class)->byId->create('127.0.0.1')->consume();
        try {
            $container->get(SymfonyConsumer::class)->signUpLimiter->check('a');
            self::fail('no exception');
        } catch (StoreUnavailable) {
            // The policy is not held.
        }
        // Requests that the configuration limits are seen as those of a controller are.
        $events = new EventDispatcher();
        $events->addSubscriber($container->get('listener'));
        foreach ([200, 429] as $status) {
            $request = Request::create('/');
            $request->attributes->set('_controller', static fn (): Response => new Response('ok'));
            $response = (new HttpKernel($events, new ControllerResolver()))->handle($request);
            self::assertSame($status, $response->getStatusCode());
            self::assertNotNull($response->headers->get('RateLimit'));
        }
        self::assertSame([
            'api allowed local', 'orders error  not_charged', 'api allowed local', 'api refused local',
        ], $container->get('app.metrics')->seen);
    }

    public function testTheCacheWarmerLooksForThePoliciesThatAreRequired(): void
    {
        $redis = RedisServer::shared();
        $orders = ['name' => 'orders', 'rules' => [['sliding_log' => ['limit' => 2, 'window' => '1h']]]];
        Published::in($redis->client(), 1, $orders);
        $warmer = static fn (string $required, string $more = 'orders'): ?object => self::container(<<<YAML
            redis: redis://127.0.0.1:$redis->port?timeout=10
            deadline_ms: 10000
            required_policies: $required
            limiters: { api: orders, sign-up: $more, mail: { rules: [ { token_bucket: { rate: 1/h } } ] } }
            YAML, static fn (ContainerBuilder $builder) => $builder
                ->setAlias('warmer', PolicyWarmer::class)->setPublic(true))->get('warmer');
        self::assertSame([], $warmer('true')?->warmUp('/tmp'));
        self::assertSame([], $warmer('[orders]', 'none')?->warmUp('/tmp', '/tmp'));
        self::assertFalse($warmer('true')->isOptional());
        !Apcu::isAvailable() ?: apcu_clear_cache();
        $redis->client()->flushAll();
        try {
            $warmer('true')?->warmUp('/tmp');
            self::fail('no exception');
        } catch (NothingPublished $e) {
            self::assertStringContainsString("127.0.0.1:$redis->port", $e->getMessage());
        }
        Published::in($redis->client(), 1, $orders);
        !Apcu::isAvailable() ?: apcu_clear_cache();
        $this->expectExceptionMessage('unknown policy `none`');
        $warmer('true', 'none')?->warmUp('/tmp');
    }

    public function testTheCommandFailsWithoutThePoliciesOfTheLimiters(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => 2, 'window' => '1h']],
        ]]);
        $run = static function (string $more, string ...$names) use ($redis): array {
            $container = self::container(<<<YAML
                redis: redis://127.0.0.1:$redis->port?timeout=10
                deadline_ms: 10000
                limiters: { api: orders, sign-up: $more, mail: { rules: [ { token_bucket: { rate: 1/h } } ] } }
                YAML, static fn (ContainerBuilder $builder) => $builder
                    ->setAlias('command', CheckCommand::class)->setPublic(true));
            $output = new BufferedOutput();
            return [$container->get('command')->run(new ArrayInput(['policy' => $names]), $output), $output->fetch()];
        };
        self::assertSame([0, "up 127.0.0.1:$redis->port\n"], $run('orders'));
        [$status, $text] = $run('none', 'other');
        self::assertSame(1, $status);
        self::assertStringStartsWith("degraded 127.0.0.1:$redis->port policy: unknown policy `none`\n", $text);
        self::assertStringContainsString('unknown policy `other`', $text);
    }

    /** As that of a long path may, whose length is the client's choice. */
    public function testAnExpressionThatFailsLetsNothingPass(): void
    {
        $limiter = InMemoryGate::with(new ManualClock(), ['p' => Limit::slidingLog(1, '1m')])->policy('p');
        $listener = new RateLimitListener([['^/(?:\D+|<\d+>)*[!?]', $limiter, 'all', false]]);
        $kernel = $this->createStub(HttpKernelInterface::class);
        $before = ini_set('pcre.backtrack_limit', '100');
        $jit = ini_set('pcre.jit', '0');
        try {
            foreach ([false, true] as $isRefused) {
                $request = Request::create('/' . str_repeat('foobar', 20));
                $event = new RequestEvent($kernel, $request, HttpKernelInterface::MAIN_REQUEST);
                $listener->onRequest($event);
                self::assertSame($isRefused, $event->hasResponse());
            }
        } finally {
            ini_set('pcre.backtrack_limit', (string) $before);
            ini_set('pcre.jit', (string) $jit);
        }
    }

    /** @return iterable<string, array{string, string}> */
    public static function mistakes(): iterable
    {
        yield 'no Redis' => ['limiters: { api: orders }', 'expected one of "redis", "runner" and "server"'];
        yield 'two' => ['{ redis: "redis://a", server: "http://b" }', 'expected one of "redis", "runner" and "server"'];
        yield 'rules at a server' => [
            '{ server: "http://b", limiters: { api: { rules: [ { token_bucket: { rate: 1/s } } ] } } }',
            'limiters with "rules" need "redis"',
        ];
        yield 'neither' => ['{ redis: "redis://a", limiters: { api: {} } }', 'expected one of "policy" and "rules"'];
        yield 'both' => [
            '{ redis: "redis://a", limiters: { api: { policy: a, rules: [] } } }',
            'expected one of "policy" and "rules"',
        ];
        yield 'a request without its limiter' => [
            '{ redis: "redis://a", requests: [ { limiter: b } ], limiters: { api: orders } }',
            'each of "requests" and "concurrency" names one of "limiters"',
        ];
        yield 'a request at once without its limiter' => [
            '{ redis: "redis://a", concurrency: [ { limiter: b } ], limiters: { api: orders } }',
            'each of "requests" and "concurrency" names one of "limiters"',
        ];
        yield 'a wait for a rate' => [
            '{ server: "http://b", requests: [ { limiter: api, max_wait_ms: 1 } ], limiters: { api: orders } }',
            'Unrecognized option "max_wait_ms"',
        ];
        yield 'no such key' => [
            '{ redis: "redis://a", requests: [ { limiter: api, key: user } ], limiters: { api: orders } }',
            'expected address, all or header:NAME',
        ];
        yield 'no expression' => [
            '{ redis: "redis://a", requests: [ { path: "^/(api", limiter: api } ], limiters: { api: orders } }',
            'expected a regular expression',
        ];
        yield 'unknown' => ['{ redis: "redis://a", limits: {} }', 'Unrecognized option "limits"'];
    }

    /** @dataProvider mistakes */
    public function testMistakesAreFoundWhenTheContainerIsBuilt(string $yaml, string $message): void
    {
        $this->expectException(InvalidConfigurationException::class);
        $this->expectExceptionMessage($message);
        self::container($yaml);
    }

    /**
     * @runInSeparateProcess
     * @preserveGlobalState disabled
     */
    public function testFactoriesHaveTheInterfaceOfSymfony7(): void
    {
        require __DIR__ . '/stubs/symfony7.php';
        $container = self::container(<<<'YAML'
            redis: redis://127.0.0.1:1
            limiters:
                api: { rules: [ { token_bucket: { rate: 1/s, burst: 2 } } ] }
                sign-up: orders
            YAML, static fn (ContainerBuilder $builder) => $builder
                ->register(Symfony7Consumer::class)->setAutowired(true)->setPublic(true));
        $factory = $container->get(Symfony7Consumer::class)->apiLimiter;
        self::assertInstanceOf(RateLimiterFactoryInterface::class, $factory);
        self::assertTrue($factory->create('a')->consume()->isAccepted());
    }

    public function testAUrlOfRedisSaysWhereItIs(): void
    {
        $endpoints = [
            'redis://cache' => 'cache:6379/0', 'redis://user:p%40ss@10.0.0.5:7000/0' => '10.0.0.5:7000/0',
            'rediss://:secret@cache' => 'tls://cache:6379/0', 'redis://[::1]:7000' => '::1:7000/0',
            'unix:/run/redis.sock' => '/run/redis.sock:0/0', 'unix:///run/redis.sock' => '/run/redis.sock:0/0',
        ];
        foreach ($endpoints as $url => $endpoint) {
            self::assertSame($endpoint, PhpRedis::ofUrl($url)->endpoint());
        }
        $bad = ['', 'cache:6379', 'http://cache', 'redis://cache/1', 'redis://cache?x=1', 'unix:run', 'redis://bob@h'];
        foreach ($bad as $url) {
            try {
                PhpRedis::ofUrl($url);
                self::fail("`$url` is a URL");
            } catch (InvalidArgumentException) {
                continue;
            }
        }
    }

    public function testAUrlOfRedisHasAQueryOrSaysWhatItDoesNotRead(): void
    {
        $timeout = static fn (string $url): float =>
            (new \ReflectionProperty(PhpRedis::class, 'address'))->getValue(PhpRedis::ofUrl($url, 0.2))[4];
        self::assertSame([0.2, 5.0, 0.5, 5.0], [
            $timeout('redis://h'), $timeout('redis://h?timeout=5'), $timeout('rediss://:p@h:1/0?timeout=0.5'),
            $timeout('unix:/run/redis.sock?timeout=5'),
        ]);
        $bad = [
            'redis://bob:s3cret@h?timeout=5&lazy=1' =>
                'redis: `redis://***@h?timeout=5&lazy=1` has the unknown parameter `lazy`; expected `timeout`',
            'redis://h?auth=s3cret' => 'redis: `redis://h?auth=***` has the unknown parameter `auth`',
            'redis://h?timeout=fast' => 'redis: `redis://h?timeout=fast` has a `timeout` that is not a number',
            'redis://h?timeout=0' => 'redis: `redis://h?timeout=0` has a `timeout`',
            'redis://h?timeout[]=1' => 'redis: `redis://h?timeout[]=1` has a `timeout`',
            'redis://:s3cret@h/3' => 'redis: `redis://***@h/3` names a database; expected none, or 0',
            'redis://bob:s3cret@[::1' => 'redis: `redis://***@[::1` is not a URL of Redis; expected redis://HOST',
            'redis://bob:s3cret@::1' => 'redis: `redis://***@::1` is not a URL of Redis',
            'redis://bob:s3cret@[::1]x:1' => 'redis: `redis://***@[::1]x:1` is not a URL of Redis',
            'http://bob:s3cret@h' => 'redis: `http://***@h` is not a URL of Redis; expected redis://HOST',
            'redis://s3cret@h' => 'redis: `redis://***@h` names a user without a password',
        ];
        foreach ($bad as $url => $message) {
            try {
                PhpRedis::ofUrl($url);
                self::fail("`$url` is a URL");
            } catch (InvalidArgumentException $e) {
                self::assertStringStartsWith($message, $e->getMessage());
            }
        }
    }

    public function testTheUserOfAUrlLogsIn(): void
    {
        $redis = RedisServer::shared();
        $redis->client()->rawCommand('ACL', 'SETUSER', 'shop', 'on', '>p@ss', '~*', '+@all');
        $run = static fn (string $user): mixed =>
            PhpRedis::ofUrl("redis://$user@127.0.0.1:$redis->port", 10.0)->run('', ['ACL', 'WHOAMI'], 10_000_000);
        self::assertSame('shop', $run('shop:p%40ss'));
        $redis->client()->rawCommand('ACL', 'DELUSER', 'shop');
    }

    /** The compiled container of a program with the bundle, as Symfony caches it. */
    private static function container(string $yaml, ?callable $more = null): ContainerInterface
    {
        $builder = new ContainerBuilder();
        $bundle = new SluicegateBundle();
        $extension = $bundle->getContainerExtension();
        self::assertNotNull($extension);
        self::assertSame('sluicegate', $extension->getAlias());
        $builder->registerExtension($extension);
        $builder->loadFromExtension('sluicegate', Yaml::parse($yaml));
        $bundle->build($builder);
        $builder->register(SymfonyConsumer::class)->setAutowired(true)->setPublic(true)
            ->setArgument('$byId', new Reference('limiter.api'));
        if ($more !== null) {
            $more($builder);
        }
        $builder->compile();
        $class = 'SluicegateContainer' . bin2hex(random_bytes(4));
        $code = (new PhpDumper($builder))->dump(['class' => $class]);
        self::assertIsString($code);
        eval(substr($code, strlen('<?php')));
        return new $class();
    }

    /** @return array{bool, int, int} */
    private static function summary(LimiterInterface $limiter): array
    {
        $taken = $limiter->consume();
        return [$taken->isAccepted(), $taken->getRemainingTokens(), $taken->getLimit()];
    }
}
