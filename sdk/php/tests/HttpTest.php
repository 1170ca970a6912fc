<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use InvalidArgumentException;
use LogicException;
use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\Gate;
use Sluicegate\Http\BadRequest;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Network;
use Sluicegate\Http\Path;
use Sluicegate\Http\RateLimitMiddleware;
use Sluicegate\Http\Refusal;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Mode;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Testing\Script;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Vectors;

final class HttpTest extends TestCase
{
    public function testTheFieldsAreThoseOfAServer(): void
    {
        $d = new Decision(new Outcome(false, 0, 0, 0, 412_954, 0, 9_412_954), 1, 'a', 't');
        self::assertSame([
            'RateLimit-Policy' => '"t";q=1', 'RateLimit' => '"t";r=0;t=1', 'X-RateLimit-Limit' => '1',
            'X-RateLimit-Remaining' => '0', 'X-RateLimit-Reset' => '1', 'Retry-After' => '1',
        ], Headers::of($d, true));
        foreach ([Mode::Deny, Mode::Shed] as $nobody) {
            $d = new Decision(new Outcome(false, 0, 0, 0, 1_000_000, 0, 0), 1, 'a', 't', $nobody);
            self::assertSame(503, Refusal::of($d)->status);
            self::assertSame(['Retry-After' => '1'], Headers::of($d, true));
            self::assertStringContainsString('#temporary-reduced-capacity', Refusal::of($d)->body);
        }
    }

    /** @return iterable<int, array{list<string>, RequestFacts, string|null}> */
    public static function keys(): iterable
    {
        $of = static fn (string $peer, string $target = '/', array $headers = [], string $method = 'GET') =>
            new RequestFacts($peer, $method, $target, $headers);
        yield [['remote_ip'], $of('203.0.113.7'), '203.0.113.7'];
        yield [['remote_ip'], $of('::ffff:203.0.113.7'), '203.0.113.7'];
        yield [['remote_ip'], $of('64:ff9b::cb00:7107'), '203.0.113.7'];
        yield [['remote_ip'], $of('2001:DB8:0:1:aaaa::1'), '2001:db8:0:1::/64'];
        yield [['remote_ip'], $of('::1'), '::/64'];
        yield [['path'], $of('', '/a|b'), '/a|b'];
        yield [['path'], $of('', '/x/../a%7Cb?c=1'), '/a|b'];
        yield [['remote_ip', 'path'], $of('203.0.113.7', '/a|b'), '203.0.113.7|/a\\|b'];
        yield [['header:x-tenant', 'method'], $of('', '/', ['x-tenant' => ['a\\b']]), 'a\\\\b|GET'];
        yield [['header:x-tenant', 'method'], $of(''), '|GET'];
        yield [['header:x-tenant'], $of(''), null];
        yield [['header:x-tenant', 'header:x-user'], $of(''), '|'];
        yield [['host'], $of('', '/', ['host' => ['Shop.Example.:8443']]), 'shop.example'];
        $long = 'sha256:96bba144f512f610a1026c2595a697c8d53e2b72a7f40b2d59b37bf9aaaa9c90';
        yield [['path'], $of('', '/' . str_repeat('x', 1024)), $long];
    }

    /**
     * @dataProvider keys
     * @param list<string> $attributes
     */
    public function testKeysAreThoseOfTheTable(array $attributes, RequestFacts $facts, ?string $expected): void
    {
        self::assertSame($expected, Key::attributes($attributes, shared: true)->of($facts, $this->limiter()));
    }

    /** @return iterable<string, array{Key, Key, list<RequestFacts>}> */
    public static function withoutAKey(): iterable
    {
        $of = static fn (string $peer = '', array $headers = []): RequestFacts =>
            new RequestFacts($peer, 'GET', '/orders', $headers);
        yield 'header `X-Tenant`' => [
            Key::header('X-Tenant'), Key::header('X-Tenant', shared: true), [$of(), $of('', ['x-tenant' => ['']])],
        ];
        yield 'address' => [Key::remoteIp(), Key::remoteIp(shared: true), [$of(), $of('unix:'), $of('lb')]];
        $two = ['header:x-tenant', 'path'];
        yield 'header `x-tenant`' => [Key::attributes($two), Key::attributes($two, shared: true), [$of()]];
        $both = ['user_agent', 'host'];
        yield 'key' => [Key::attributes($both), Key::attributes($both, shared: true), [$of()]];
        $none = static fn (): ?string => null;
        yield 'key of a function' => [Key::by($none), Key::by($none, shared: true), [$of('192.0.2.1')]];
    }

    /**
     * @dataProvider withoutAKey
     * @param list<RequestFacts> $requests
     */
    public function testARequestWithoutItsKeyIsRefusedUnlessTheProgramSharesABudget(
        Key $key,
        Key $shared,
        array $requests,
    ): void {
        foreach ($requests as $facts) {
            try {
                self::fail('the key is ' . json_encode($key->of($facts, $this->limiter())));
            } catch (BadRequest $e) {
                $what = str_replace(' of a function', '', (string) $this->dataName());
                self::assertSame("$what: is missing", $e->getMessage());
                self::assertSame(400, Refusal::undecided($e)->status);
            }
            self::assertSame($shared->of($facts, $this->limiter()), $shared->of($requests[0], $this->limiter()));
        }
    }

    /** @return iterable<string, array{callable(list<string>): RequestFacts}> */
    public static function requestsWithFields(): iterable
    {
        yield 'PSR-7' => [static fn (array $values): RequestFacts =>
            RequestFacts::ofPsr7(new ServerRequest('GET', '/', ['X-Tenant' => $values]))];
        // Servers join fields of one name before PHP sees them.
        yield 'PSR-7, of getallheaders()' => [static fn (array $values): RequestFacts =>
            RequestFacts::ofPsr7(new ServerRequest('GET', '/', ['X-Tenant' => implode(', ', $values)]))];
        yield 'plain PHP' => [static function (array $values): RequestFacts {
            $before = $_SERVER;
            $_SERVER['HTTP_X_TENANT'] = implode(', ', $values);
            try {
                return RequestFacts::ofGlobals();
            } finally {
                $_SERVER = $before;
            }
        }];
    }

    /**
     * @dataProvider requestsWithFields
     * @param callable(list<string>): RequestFacts $of
     */
    public function testTwoFieldsOfOneNameAreNoKey(callable $of): void
    {
        foreach ([Key::header('X-Tenant'), Key::header('X-Tenant', shared: true)] as $key) {
            self::assertSame('a,b', $key->of($of(['a,b']), $this->limiter()));
            foreach ([['forged', 'real'], ['real', ''], ['', 'real'], ['', '']] as $values) {
                try {
                    self::fail('the key is ' . json_encode($key->of($of($values), $this->limiter())));
                } catch (BadRequest $e) {
                    self::assertStringStartsWith('header `X-Tenant`: is given more than once', $e->getMessage());
                }
            }
        }
        // Lists of other fields are as they are.
        $facts = new RequestFacts('', 'GET', '/', ['user-agent' => ['Mozilla/5.0 (KHTML, like Gecko)']]);
        $agent = Key::attributes(['user_agent']);
        self::assertSame('Mozilla/5.0 (KHTML, like Gecko)', $agent->of($facts, $this->limiter()));
    }

    public function testOneBudgetForAllIsChosen(): void
    {
        $facts = new RequestFacts('192.0.2.1', 'GET', '/', []);
        self::assertNull(Key::shared()->of($facts, $this->limiter()));
        self::assertNull(Key::attributes([])->of($facts, $this->limiter()));
        // A policy without `key` chose it, too.
        $gate = InMemoryGate::with(new ManualClock(), ['p' => Limit::slidingLog(1, '1m')]);
        self::assertNull(Key::ofPolicy()->of($facts, $gate->policy('p')));
    }

    public function testAPortIsNoPartOfAnAddress(): void
    {
        $key = Key::remoteIp(['10.0.0.0/8', 'fd00::/8']);
        $of = fn (string $peer, string $forwarded): ?string => $key->of(
            new RequestFacts($peer, 'GET', '/', ['x-forwarded-for' => [$forwarded]]),
            $this->limiter(),
        );
        $same = [
            '198.18.0.7:401', '198.18.0.7', ' 198.18.0.7:65535 ', '198.18.0.7:0', '198.18.0.7:000080',
            '1.1.1.1:1, 198.18.0.7:401, 10.0.0.9:8080',
        ];
        foreach ($same as $hop) {
            self::assertSame('198.18.0.7', $of('10.0.0.1', $hop), $hop);
            self::assertSame('198.18.0.7', $of('10.0.0.1:5432', $hop), $hop);
            self::assertSame('198.18.0.7', $of('[fd00::1]:443', $hop), $hop);
        }
        foreach (['[2001:db8::1]:443', '[2001:db8::1]', '2001:db8::1', '[2001:db8::1]:443, [fd00::2]:80'] as $hop) {
            self::assertSame('2001:db8::/64', $of('10.0.0.1', $hop), $hop);
        }
        // Other texts are not read, and addresses from other peers are not believed.
        $others = [
            '198.18.0.7:', '198.18.0.7:x', '198.18.0.7:123456', '[198.18.0.7', '2001:db8::1]:443', 'host:80',
            '198.18.0.7:65536', '198.18.0.7:99999', '[2001:db8::1]:99999', '[2001:db8::1]:', '198.18.0.7:+1',
            '[198.18.0.7]', '[198.18.0.7]:80',
        ];
        foreach ($others as $bad) {
            self::assertSame('10.0.0.1', $of('10.0.0.1', $bad), $bad);
        }
        self::assertSame('203.0.113.9', $of('203.0.113.9:555', '198.18.0.7:401'));
    }

    public function testAnotherHeaderOfTrustedProxiesHasTheAddress(): void
    {
        foreach (['X-Real-IP', 'CF-Connecting-IP'] as $name) {
            $facts = static fn (string $peer): RequestFacts => new RequestFacts($peer, 'GET', '/', [
                strtolower($name) => ['198.51.100.1'], 'x-forwarded-for' => ['203.0.113.1'],
            ]);
            $key = Key::remoteIp(['10.0.0.0/8'], header: $name);
            self::assertSame('198.51.100.1', $key->of($facts('10.1.2.3'), $this->limiter()));
            self::assertSame('192.0.2.1', $key->of($facts('192.0.2.1'), $this->limiter()));
            $both = Key::attributes(['remote_ip', 'path'], ['10.0.0.0/8'], $name);
            self::assertSame('198.51.100.1|/', $both->of($facts('10.1.2.3'), $this->limiter()));
        }
        self::assertInvalid('`X Real`', static fn (): Key => Key::remoteIp(header: 'X Real'));
    }

    /** @return iterable<string, array{list<string>, array<mixed>}> */
    public static function clientAddresses(): iterable
    {
        $text = (string) file_get_contents(Vectors::DIR . '/client-addresses.json');
        $table = json_decode($text, true, 64, JSON_THROW_ON_ERROR);
        foreach ($table['cases'] as $case) {
            yield "$case[field]: $case[name]" => [$table['trusted'], $case];
        }
    }

    /**
     * The table is the same for all SDKs.
     *
     * @dataProvider clientAddresses
     * @param list<string> $trusted
     * @param array<mixed> $case
     */
    public function testTheClientIsTheOneThatTrustedProxiesName(array $trusted, array $case): void
    {
        $lines = $case['lines'];
        if (isset($case['filler'])) {
            $lines[0] .= str_repeat($case['filler']['text'], $case['filler']['times']);
        }
        $headers = $lines === [] ? [] : [strtolower($case['field']) => $lines];
        $facts = new RequestFacts($case['peer'], 'GET', '/', $headers);
        self::assertSame($case['key'], Key::remoteIp($trusted, $case['field'])->of($facts, $this->limiter()));
    }

    public function testManyHeaderFieldsAndAddressesAreReadInTime(): void
    {
        $headers = ['x-forwarded-for' => [implode(', ', array_fill(0, 20_000, '10.0.0.2'))]];
        for ($number = 0; $number < 200; $number++) {
            $headers["x-field-$number"] = [str_repeat('v', 1000)];
        }
        $facts = new RequestFacts('10.0.0.1', 'GET', '/', $headers);
        // Only so many addresses are read; the last of them is that of a proxy, too.
        self::assertSame('10.0.0.2', Key::remoteIp(['10.0.0.0/8'])->of($facts, $this->limiter()));
        $all = array_map(static fn (string $name): string => "header:$name", array_slice(array_keys($headers), 1));
        self::assertStringStartsWith('sha256:', (string) Key::attributes($all)->of($facts, $this->limiter()));
    }

    public function testAMisspeltAttributeIsRefused(): void
    {
        $bad = ['remoteip', 'Path', 'status', 'header', 'header:', 'header:a b', "header:a\n", ''];
        foreach ($bad as $attribute) {
            self::assertInvalid("`$attribute`", static fn (): Key => Key::attributes(['path', $attribute]));
        }
        foreach (['', 'a b', 'é', "a\n"] as $name) {
            self::assertInvalid("`header:$name`", static fn (): Key => Key::header($name));
        }
        self::assertSame('b', Key::header('X_A!')->of(
            new RequestFacts('', 'GET', '/', ['x_a!' => ['b']]),
            $this->limiter(),
        ));
    }

    public function testTheKeyOfAPolicyThatIsNotKnownIsAMistake(): void
    {
        $facts = new RequestFacts('192.0.2.1', 'GET', '/', []);
        $limiters = [
            InMemoryGate::with(new ManualClock())->limit('l', Limit::slidingLog(1, '1m')),
            Gate::remote('http://127.0.0.1:1')->policy('p'), (new Script())->gate()->policy('p'),
        ];
        foreach ($limiters as $limiter) {
            try {
                self::fail('the key is ' . json_encode(Key::ofPolicy()->of($facts, $limiter)));
            } catch (LogicException $e) {
                self::assertStringContainsString("`$limiter->name`", $e->getMessage());
            }
        }
    }

    public function testTheKeyThatAFunctionMakesIsLikeOthersOfRequests(): void
    {
        $facts = new RequestFacts('', 'GET', '/', []);
        $of = fn (?string $key): ?string =>
            Key::by(static fn (): ?string => $key, shared: true)->of($facts, $this->limiter());
        $long = str_repeat('x', 1025);
        self::assertSame([null, 'a|b', 'sha256:' . hash('sha256', $long)], [$of(null), $of('a|b'), $of($long)]);
        $this->expectException(BadRequest::class);
        $of('');
    }

    public function testADecisionThatAllowsIsNoRefusal(): void
    {
        $this->expectException(LogicException::class);
        Refusal::of(new Decision(new Outcome(true, 0, 1, 0, 0, 0, 0), 1, 'a', 't'));
    }

    /** @return iterable<string, array{SluicegateException, int}> */
    public static function requestsWithoutADecision(): iterable
    {
        yield 'an unknown policy' => [InvalidRequest::unknownPolicy('orders'), 500];
        yield 'a policy of another app' => [InvalidRequest::notAvailable('orders', 'shop'), 500];
        yield 'a policy of a later version' => [new UnreadablePolicy('orders', 'version 9'), 500];
        yield 'no answer of Redis' => [new StoreUnavailable('away, and policy `orders` is not held', false), 503];
        yield 'no policies' => [new NothingPublished('10.0.0.5:6379'), 503];
        yield 'a token that the server does not know' => [new ServerProblem(401, 'orders: unknown token'), 503];
    }

    /** @dataProvider requestsWithoutADecision */
    public function testAnAnswerWithoutADecisionNamesNoPolicy(SluicegateException $e, int $status): void
    {
        $refusal = Refusal::undecided($e);
        self::assertSame([$status, 'application/problem+json'], [
            $refusal->status, $refusal->headers['Content-Type'],
        ]);
        self::assertSame($status === 503, isset($refusal->headers['Retry-After']));
        self::assertSame($status, json_decode($refusal->body, true)['status']);
        self::assertDoesNotMatchRegularExpression('/orders|shop|10\.0\.0\.5/', $refusal->body);
    }

    public function testPathsHaveOneSpelling(): void
    {
        $same = [
            '/' => '/', '/a/' => '/a/', '/a//b' => '/a/b', '/a/./b' => '/a/b', '/a/b/..' => '/a/', '/a/b/.' => '/a/b/',
            '/%61' => '/a', '/a%2Fb' => '/a/b', '/a%2fb' => '/a/b', '/%25' => '/%25', '/a%3Fb' => '/a%3Fb',
            '/%c3%a9' => '/é', '/%ff' => '/%FF', '/%0a' => '/%0A', '/..' => '/', '/../a' => '/a', '/a#b' => '/a',
            'http://host/a?b' => '/a', '/%2e/a' => '/a',
        ];
        foreach ($same as $target => $path) {
            self::assertSame($path, Path::of($target), $target);
        }
        $bad = ['a', '', '*', '/%', '/%4', '/%zz', '/a/%2e%2e', '/a/.%2e/b', '/a/..%2fb', '/a//../b', '/a%2f../b'];
        foreach ($bad as $target) {
            try {
                self::fail("$target is " . Path::of($target));
            } catch (BadRequest) {
                continue;
            }
        }
    }

    public function testForwardedAddressesAreBelievedOfTrustedProxiesOnly(): void
    {
        $facts = static fn (string $peer, string ...$hops): RequestFacts =>
            new RequestFacts($peer, 'GET', '/', ['x-forwarded-for' => $hops]);
        $key = Key::remoteIp(['10.0.0.0/8', 'fd00::/9']);
        $limiter = $this->limiter();
        self::assertSame('203.0.113.9', $key->of($facts('203.0.113.9', '198.51.100.1'), $limiter));
        self::assertSame('198.51.100.1', $key->of($facts('10.1.2.3', '1.1.1.1, 198.51.100.1'), $limiter));
        self::assertSame('198.51.100.1', $key->of($facts('10.1.2.3', '1.1.1.1, 198.51.100.1', '10.9.9.9'), $limiter));
        self::assertSame('10.1.2.3', $key->of($facts('10.1.2.3', '1.1.1.1, nonsense'), $limiter));
        self::assertSame('198.51.100.1', $key->of($facts('fd00::1', '198.51.100.1'), $limiter));
        self::assertSame('10.1.2.3', Key::remoteIp()->of($facts('10.1.2.3', '1.1.1.1'), $limiter));
    }

    /** @return iterable<string, array{string}> */
    public static function noNetworks(): iterable
    {
        $texts = [
            '', '/', '10.0.0.0/', '10.0.0.0/x8', '10.0.0.0/8x', '10.0.0.0/33', '10.0.0.0/-1', '10.0.0.0/08',
            '10.0.0.0/8/8', '10.0.0.0/ 8', ' 10.0.0.0/8', '10.0.0.0/8 ', "10.0.0.0/8\n", "10.0.0.0\0/8", '10.0.0/8',
            '10.0.0.0/8.0', '/8', 'fd00::/129', 'fd00::1%eth0', 'proxy.example', '10.0.0.0,10.0.0.1',
            '::ffff:10.0.0.0/129', '10.0.0.0/1e1',
        ];
        foreach ($texts as $text) {
            yield json_encode($text) => [$text];
        }
    }

    /** @dataProvider noNetworks */
    public function testWhatIsNoNetworkIsNotTrustedButSaid(string $text): void
    {
        $keys = [
            static fn () => Key::remoteIp(['10.0.0.0/8', $text]),
            static fn () => Key::ofPolicy([$text]),
            static fn () => Key::attributes(['path'], [$text]),
        ];
        foreach ($keys as $key) {
            try {
                $key();
                self::fail('it is taken');
            } catch (InvalidArgumentException $e) {
                self::assertStringStartsWith("trusted: `$text` is not a network", $e->getMessage());
            }
        }
    }

    public function testANetworkIsItsBitsAlone(): void
    {
        $in = [
            '0.0.0.0/0' => ['1.2.3.4', '::ffff:1.2.3.4'], '10.0.0.1' => ['10.0.0.1', '::ffff:10.0.0.1', '::FFFF:A00:1'],
            '10.1.2.3/9' => ['10.127.255.255'], '::ffff:10.0.0.0/104' => ['10.9.9.9', '::ffff:10.9.9.9'],
            '::ffff:10.0.0.1' => ['10.0.0.1'], '::/0' => ['fd00::1'], 'FD00::/127' => ['fd00::1'],
        ];
        $out = [
            '10.0.0.1' => ['10.0.0.2', '::ffff:10.0.0.2', '::10.0.0.1', '', 'x'], '10.0.0.0/9' => ['10.128.0.0'],
            '::/0' => ['10.0.0.1', '::ffff:10.0.0.1'], 'fd00::/127' => ['fd00::2'], '10.0.0.0/32' => ['11.0.0.0'],
        ];
        foreach ([[$in, true], [$out, false]] as [$networks, $expected]) {
            foreach ($networks as $network => $addresses) {
                foreach ($addresses as $address) {
                    self::assertSame($expected, Network::of($network)->has($address), "$address in $network");
                }
            }
        }
    }

    public function testAProxyThatComesAsIPv4InsideIPv6IsTrusted(): void
    {
        $facts = new RequestFacts('::ffff:10.0.0.1', 'GET', '/', ['x-forwarded-for' => ['1.1.1.1, ::ffff:10.0.0.2']]);
        self::assertSame('1.1.1.1', Key::remoteIp(['10.0.0.0/8'])->of($facts, $this->limiter()));
    }

    public function testTheMiddlewareLimits(): void
    {
        $clock = new ManualClock();
        $gate = InMemoryGate::with($clock, Fixture::text());
        $send = fn (string $policy, string $ip = '192.0.2.1', array $headers = [], ?callable $fallback = null) =>
            (new RateLimitMiddleware(
                $gate->policy($policy),
                Key::ofPolicy(),
                new Psr17Factory(),
                fallback: $fallback,
            ))->process(
                new ServerRequest('GET', '/', $headers, null, '1.1', ['REMOTE_ADDR' => $ip]),
                $this->handler(),
            );
        $ok = $send('plain');
        self::assertSame([200, '"tries";q=1;w=60', '"tries";r=0;t=66'], [
            $ok->getStatusCode(), $ok->getHeaderLine('RateLimit-Policy'), $ok->getHeaderLine('RateLimit'),
        ]);
        $clock->advance(10.5);
        $refused = $send('plain', headers: ['X-Forwarded-For' => '203.0.113.1']);
        self::assertSame([429, '56', 'application/problem+json'], [
            $refused->getStatusCode(), $refused->getHeaderLine('Retry-After'), $refused->getHeaderLine('Content-Type'),
        ]);
        self::assertSame(['tries'], json_decode((string) $refused->getBody(), true)['violated-policies']);
        self::assertSame(200, $send('plain', '192.0.2.2')->getStatusCode());
        foreach (['seen' => 200, 'old' => 203, 'other' => 429] as $policy => $status) {
            $send($policy);
            self::assertSame($status, $send($policy)->getStatusCode(), $policy);
        }
        $divert = static fn (Decision $d): ResponseInterface =>
            new Response(302, ['Location' => $d->overflow?->target]);
        self::assertSame(302, $send('other', fallback: $divert)->getStatusCode());
    }

    public function testWithoutRedisTheMiddlewareAnswersAsThePolicySays(): void
    {
        $gate = Gate::remote('http://127.0.0.1:1');
        $middleware = static fn (bool $pass): RateLimitMiddleware => new RateLimitMiddleware(
            $gate->policy('p'),
            Key::shared(),
            new Psr17Factory(),
            passUnavailable: $pass,
        );
        $request = new ServerRequest('GET', '/');
        self::assertSame(503, $middleware(false)->process($request, $this->handler())->getStatusCode());
        self::assertSame(200, $middleware(true)->process($request, $this->handler())->getStatusCode());
    }

    /** @return iterable<string, array{string, string, int}> */
    public static function answersThatAreNoDecision(): iterable
    {
        yield 'of a balancer' => ['502', 'bad gateway', 200];
        yield 'of a server that refuses the token' => ['401', '{"detail":"invalid token"}', 503];
        yield 'of something else' => ['200', '{}', 503];
    }

    /** @dataProvider answersThatAreNoDecision */
    public function testOnlyAnOutageOfAServerLetsRequestsPass(string $status, string $body, int $passes): void
    {
        $server = new HttpServer(__DIR__ . '/Support/odd.php', ['STATUS' => $status, 'BODY' => $body]);
        $limiter = Gates::remote($server->url)->policy('p');
        foreach ([false, true] as $pass) {
            $factory = new Psr17Factory();
            $middleware = new RateLimitMiddleware($limiter, Key::shared(), $factory, passUnavailable: $pass);
            $response = $middleware->process(new ServerRequest('GET', '/'), $this->handler());
            self::assertSame($pass ? $passes : 503, $response->getStatusCode());
        }
    }

    /** @param callable(): mixed $act */
    private static function assertInvalid(string $part, callable $act): void
    {
        try {
            $act();
            self::fail("$part is taken");
        } catch (InvalidArgumentException $e) {
            self::assertStringContainsString($part, $e->getMessage());
        }
    }

    private function limiter(): Limiter
    {
        return Gate::direct(PhpRedis::connect('127.0.0.1', 1))->policy('p');
    }

    private function handler(): RequestHandlerInterface
    {
        return new class implements RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return new Response(200);
            }
        };
    }
}
