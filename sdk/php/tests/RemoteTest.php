<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use ReflectionMethod;
use Sluicegate\Decision;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\ErrorReply;
use Sluicegate\Remote\Check;
use Sluicegate\Remote\ExplainedRule;
use Sluicegate\Remote\Http;
use Sluicegate\Remote\HttpGate;
use Sluicegate\Remote\RespDecider;
use Sluicegate\Testing\Script;
use Sluicegate\Tests\Support\Drip;
use Sluicegate\Tests\Support\FixedRunner;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;
use Sluicegate\Tests\Support\Vectors;

final class RemoteTest extends TestCase
{
    private const POLICIES = [
        ['name' => 'llm', 'rules' => [['name' => 'tokens', 'token_bucket' => ['rate' => '1000/d', 'burst' => 1000]]]],
        ['name' => 'jobs', 'rules' => [['name' => 'running', 'concurrency' => ['limit' => 2, 'ttl' => '5m']]]],
        ['name' => 'turns', 'rules' => [['concurrency' => ['limit' => 1, 'ttl' => '5m', 'queue' => 9]]]],
        ['name' => 'brief', 'rules' => [['concurrency' => ['limit' => 1, 'ttl' => '300ms', 'queue' => 9]]]],
        ['name' => 'seen', 'rules' => [['concurrency' => ['limit' => 1, 'ttl' => '5m']]], 'overflow' => 'shadow'],
        ['name' => 'small', 'rules' => [['sliding_log' => ['limit' => 1, 'window' => '1h']]], 'overflow' => [
            'degrade' => ['tag' => 'cached'],
        ]],
        ['name' => 'away', 'rules' => [['sliding_log' => ['limit' => 1, 'window' => '1h']]], 'overflow' => [
            'divert' => ['target' => 'slow'],
        ]],
        ['name' => 'import', 'apps' => ['partner'], 'rules' => [['sliding_log' => ['limit' => 9, 'window' => '1h']]]],
        ['name' => 'old', 'rules' => [['sliding_log' => ['limit' => 1, 'window' => '1h']]], 'overflow' => [
            'degrade' => ['response' => ['status' => 203, 'body' => 'cached', 'headers' => ['x-a' => 'b']]],
        ]],
        ['name' => 'two', 'overflow' => 'shadow', 'on_store_failure' => 'deny', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => 9, 'window' => '1h']],
            ['name' => 'day', 'fixed_window' => ['limit' => 50, 'window' => '24h']],
        ], 'overrides' => [['key' => 'vip', 'rules' => [['sliding_log' => ['limit' => 7, 'window' => '1h']]]]]],
    ];

    /** The members of a valid decision. */
    private const GOOD = [
        'allowed' => true, 'code' => 1, 'granted' => 1, 'wait_us' => 0, 'limit' => 5, 'remaining' => 4,
        'retry_after_us' => 0, 'reset_after_us' => 1, 'rule' => 'r',
    ];

    private static ?Server $server = null;
    private static ?HttpServer $odd = null;

    public static function tearDownAfterClass(): void
    {
        [self::$server, self::$odd] = [null, null];
        @unlink(self::oddFile());
    }

    /** @return iterable<string, array{string}> */
    public static function ways(): iterable
    {
        yield 'HTTP' => ['http'];
        yield 'RESP' => ['resp'];
    }

    /** @dataProvider ways */
    public function testAServerDecides(string $way): void
    {
        $gate = Gates::remote($this->url($way));
        $llm = $gate->policy('llm');
        $first = $llm->check($way, 400);
        self::assertSame([true, 400, 1000, 600, 0], [
            $first->allowed, $first->granted, $first->limit, $first->remaining, $first->retryAfterUs,
        ]);
        self::assertSame(['llm', 'tokens', Mode::Store], [$first->policy, $first->rule, $first->mode]);
        self::assertSame($way === 'http' ? '"tokens";q=1000;w=86400' : '', $first->quotas);
        self::assertSame(600, $llm->peek($way)->remaining);
        $refused = $llm->check($way, 700);
        self::assertFalse($refused->allowed);
        self::assertGreaterThan(8_000_000_000, $refused->retryAfterUs);
        self::assertNull($llm->check($way, 1001)->retryAfterUs);
        $wait = $llm->reserve($way, 700)->waitUs;
        self::assertGreaterThan(8_000_000_000, $wait);
        self::assertSame(700, $llm->refund($way, 700)->granted);
        self::assertTrue($llm->reset($way)->allowed);
        self::assertSame(999, $llm->check($way)->remaining);
        $permit = $gate->policy('jobs')->acquire($way);
        self::assertTrue($permit->isHeld() && $permit->renew());
        self::assertSame(1, $gate->policy('jobs')->peek($way)->remaining);
        $permit->release();
        self::assertSame(2, $gate->policy('jobs')->peek($way)->remaining);
        $held = $gate->policy('seen')->acquire($way);
        $shadowed = $gate->policy('seen')->acquire($way, id: 'shadowed');
        self::assertSame(OverflowKind::Shadow, $shadowed->decision->overflow?->kind);
        self::assertTrue($held->isHeld() && $shadowed->isHeld() && $shadowed->renew());
        $renewed = $gate->policy('seen')->renew($way, 'shadowed');
        self::assertSame([true, OverflowKind::Shadow], [$renewed->allowed, $renewed->overflow?->kind]);
        $shadowed->release();
        self::assertSame(0, $gate->policy('seen')->peek($way)->remaining);
        $gate->policy('old')->check($way);
        $over = $gate->policy('old')->check($way);
        self::assertSame([false, OverflowKind::Degrade], [$over->allowed, $over->overflow?->kind]);
        self::assertSame([203, 'cached'], [$over->overflow?->response?->status, $over->overflow?->response?->body]);
        foreach (['small' => ['cached', null], 'away' => [null, 'slow']] as $name => $expected) {
            $gate->policy($name)->check($way);
            $over = $gate->policy($name)->check($way);
            self::assertSame([false, ...$expected], [$over->allowed, $over->overflow?->tag, $over->overflow?->target]);
        }
        self::assertTrue(Gates::remote($this->url($way), app: 'partner')->policy('import')->check($way)->allowed);
        $error = $way === 'http' ? 'policy_not_available' : 'unknown_policy';
        $this->assertError($error, fn () => Gates::remote($this->url($way), app: 'web')
            ->policy('import')->check($way));
        $this->assertError('unknown_policy', fn () => $gate->policy('none')->check($way));
        $this->assertError('unsupported_verb', fn () => $gate->policy('llm')->acquire($way));
        $this->assertError('rules', fn () => $gate->limit('a', Limit::slidingLog(1, '1h'))->check($way));
    }

    /** @dataProvider ways */
    public function testAnAcquireWaitsForAPermit(string $way): void
    {
        $brief = Gates::remote($this->url($way))->policy('brief');
        self::assertTrue($brief->acquire($way)->isHeld());
        self::assertFalse($brief->acquire($way)->isHeld());
        // The permit before it lapses.
        $waited = $brief->acquire($way, maxWaitUs: 10_000_000);
        self::assertTrue($waited->isHeld());
        $way === 'resp' ?: self::assertGreaterThan(0, $waited->decision->heldUs);
    }

    /** @dataProvider ways */
    public function testTheTimeoutOfAnAcquireThatWaitsIsLonger(string $way): void
    {
        $turns = Gates::remote($this->url($way), timeoutMs: 1000)->policy('turns');
        $held = $turns->acquire($way);
        $begin = hrtime(true);
        $refused = $turns->acquire($way, maxWaitUs: 1_200_999);
        self::assertGreaterThanOrEqual(1_199_000_000, hrtime(true) - $begin);
        self::assertSame([false, 0], [$refused->isHeld(), $refused->decision->remaining]);
        $way === 'resp' ?: self::assertSame(1_200_000, $refused->decision->heldUs);
        self::assertFalse($turns->acquire($way, maxWaitUs: 0)->isHeld());
        $held->release();
        // Any wait at all, which no timer of a client counts.
        self::assertTrue($turns->acquire("any $way", maxWaitUs: 9007199254740991)->isHeld());
    }

    /** @dataProvider ways */
    public function testAnAcquireThatCannotWaitIsAnError(string $way): void
    {
        $gate = Gates::remote($this->url($way));
        $this->assertError('unsupported_verb', fn () => $gate->policy('jobs')->acquire('w', maxWaitUs: 1000), <<<'END'
            op: `acquire with max_wait` is not supported by policy `jobs`
            END);
        foreach ([-1, 9007199254740992] as $us) {
            $this->assertError('max_wait_range', fn () => $gate->policy('turns')->acquire('w', maxWaitUs: $us));
        }
        self::assertSame(2, $gate->policy('jobs')->peek('w')->remaining);
    }

    /** @dataProvider ways */
    public function testAPermitWhoseReplyIsLostIsReleased(string $way): void
    {
        $url = $this->url($way);
        $proxy = new Proxy((int) substr($url, strrpos($url, ':') + 1));
        $key = "lost $way";
        $plain = Gates::remote($url)->policy('turns');
        $turns = Gates::remote("$way://127.0.0.1:$proxy->port")->policy('turns');
        foreach ([null, 1_000_000] as $maxWaitUs) {
            $proxy->loseNextReply();
            $this->assertError('perhaps_charged', fn () => $turns->acquire($key, maxWaitUs: $maxWaitUs));
            self::assertSame(1, $plain->peek($key)->remaining, 'it was released');
        }
        // The id of a caller is the caller's to release.
        $proxy->loseNextReply();
        $this->assertError('perhaps_charged', fn () => $turns->acquire($key, id: 'mine'));
        self::assertSame(0, $plain->peek($key)->remaining);
        self::assertTrue($plain->release($key, 'mine')->allowed);
    }

    /** @return iterable<string, array{SluicegateException, int}> */
    public static function failures(): iterable
    {
        yield 'nothing was charged' => [new StoreUnavailable('gone', false), 0];
        yield 'perhaps charged' => [new StoreUnavailable('gone', true), 2];
        yield 'of a balancer' => [new ServerProblem(502, 'bad gateway'), 2];
    }

    /** @dataProvider failures */
    public function testAPermitThatIsPerhapsHeldIsReleasedTwiceAtMost(SluicegateException $why, int $releases): void
    {
        $script = (new Script())->fail($why)->fail(new StoreUnavailable('away', true))->fail($why)->fail($why);
        $this->assertError($why->errorName, fn () => $script->gate()->policy('jobs')->acquire('k'));
        self::assertSame(3 - $releases, $script->left());
        $script = (new Script())->fail($why)->allow(1, 1)->fail($why);
        $this->assertError($why->errorName, fn () => $script->gate()->policy('jobs')->acquire('k'));
        self::assertSame($releases > 0 ? 1 : 2, $script->left(), 'an answer ends it');
    }

    public function testAtMostIsThereOverHttp(): void
    {
        self::assertSame(1000, Gates::remote($this->url('http'))->policy('llm')->atMost('most', 3000)->granted);
    }

    public function testWhatAWireLacksIsSaid(): void
    {
        $byResp = Gates::remote($this->url('resp'))->policy('llm');
        $this->assertError('not_on_this_wire', fn () => $byResp->atMost('a', 2));
        $this->assertError('key_text', fn () => $this->server()->policy('llm')->check("\xff"));
        // RESP carries any bytes, as Redis does.
        self::assertTrue($byResp->check("\xff")->allowed);
        self::assertNotInstanceOf(HttpGate::class, Gates::remote($this->url('resp')));
        self::assertInstanceOf(HttpGate::class, Gates::remote($this->url('http')));
    }

    /** @return iterable<string, array{int, int, int, int, int, int}> */
    public static function settlements(): iterable
    {
        // Charged before, what it came to; then: given back, taken, missing, remaining.
        yield 'it cost less' => [500, 380, 120, 0, 0, 620];
        yield 'it cost more' => [500, 700, 0, 200, 0, 300];
        yield 'it cost what was charged' => [500, 500, 0, 0, 0, 500];
        yield 'it cost nothing' => [500, 0, 500, 0, 0, 1000];
        yield 'it cost more than there is' => [500, 1200, 0, 500, 200, 0];
    }

    /** @dataProvider settlements */
    public function testWhatItCostIsSettledOnce(
        int $charged,
        int $cost,
        int $refunded,
        int $taken,
        int $missing,
        int $remaining,
    ): void {
        $gate = $this->server();
        $key = "settle $cost";
        $gate->policy('llm')->check($key, $charged);
        $settled = $gate->settle('llm', $key, 'call-1', $charged, $cost);
        self::assertSame([$refunded, $taken, $missing], [$settled->refunded, $settled->taken, $settled->missing]);
        self::assertSame('llm', $settled->decision->policy);
        self::assertSame($remaining, $gate->policy('llm')->peek($key)->remaining);
        try {
            $gate->settle('llm', $key, 'call-1', $charged, $cost);
            self::fail('it is settled twice');
        } catch (ServerProblem $e) {
            self::assertSame(['server', 409], [$e->errorName, $e->status]);
        }
        self::assertSame($remaining, $gate->policy('llm')->peek($key)->remaining);
    }

    public function testSettlementsThatMakeNoSenseAreErrors(): void
    {
        $gate = $this->server();
        $this->assertError('id_length', fn () => $gate->settle('llm', 'a', '', 1, 1));
        $this->assertError('key_empty', fn () => $gate->settle('llm', '', 'x', 1, 1));
        $this->assertError('cost_range', fn () => $gate->settle('llm', 'a', 'x', 0, 1));
        $this->assertError('cost_range', fn () => $gate->settle('llm', 'a', 'x', 1, -1));
        $this->assertError('unknown_policy', fn () => $gate->settle('none', 'a', 'x', 1, 1));
    }

    public function testAServerExplains(): void
    {
        $gate = $this->server();
        $gate->policy('two')->check('why', 3);
        $why = $gate->explain('two', 'why', 2);
        self::assertSame([true, 2, false, 'shadow', OnStoreFailure::Deny, null, null], [
            $why->decision->allowed, $why->wouldCharge, $why->isOverride, $why->overflow, $why->onStoreFailure,
            $why->app, $why->apps,
        ]);
        self::assertSame([['hour', 'sliding_log', 9, 6], ['day', 'fixed_window', 50, 47]], array_map(
            static fn (ExplainedRule $rule): array => [$rule->name, $rule->algorithm, $rule->limit, $rule->remaining],
            $why->rules,
        ));
        self::assertSame([3600, true, 0], [
            $why->rules[0]->windowS, $why->rules[0]->allowed, $why->rules[0]->retryAfterUs,
        ]);
        $own = $gate->explain('two', 'vip', 8);
        self::assertSame([true, ['sliding_log'], false], [
            $own->isOverride, array_column($own->rules, 'name'), $own->rules[0]->allowed,
        ]);
        // It takes nothing.
        self::assertSame(6, $gate->policy('two')->peek('why')->remaining);
        $this->assertError('unknown_policy', fn () => $gate->explain('none', 'a'));
    }

    public function testChecksOfABatchAreDecidedEach(): void
    {
        $gate = $this->server();
        $answers = $gate->checkEach(
            new Check('llm', 'each', 400),
            new Check('llm', 'each', 700),
            new Check('none', 'each'),
            new Check('import', 'each'),
            new Check('old', null),
        );
        self::assertSame([true, 600, 'llm'], [$answers[0]->allowed, $answers[0]->remaining, $answers[0]->policy]);
        self::assertFalse($answers[1]->allowed);
        self::assertSame(['unknown_policy', 'policy: unknown policy `none`'], [
            $answers[2]->errorName, $answers[2]->getMessage(),
        ]);
        self::assertSame('app_missing', $answers[3]->errorName);
        self::assertSame(['old', true], [$answers[4]->policy, $answers[4]->allowed]);
        $this->assertError('cost_range', fn () => $gate->checkEach(new Check('llm', 'a', 0)));
        $this->assertError('server', fn () => $gate->checkEach());
    }

    public function testABatchPassesTogetherOrNotAtAll(): void
    {
        $gate = $this->server();
        $both = $gate->checkAll(new Check('llm', 'all', 400), new Check('two', 'all', 4));
        self::assertSame([true, null], [$both->allowed, $both->refused]);
        self::assertSame([['llm', 600], ['two', 5]], array_map(
            static fn (Decision $decision): array => [$decision->policy, $decision->remaining],
            $both->decisions,
        ));
        $none = $gate->checkAll(new Check('llm', 'all', 400), new Check('jobs', 'all'), new Check('llm', 'all', 601));
        self::assertFalse($none->allowed);
    }

    public function testARefusedBatchTakesNothing(): void
    {
        $gate = $this->server();
        $gate->policy('llm')->check('none', 400);
        $none = $gate->checkAll(new Check('llm', 'none', 400), new Check('old', 'none', 2));
        self::assertSame([false, 1, ['old']], [
            $none->allowed, $none->refused, array_column($none->decisions, 'policy'),
        ]);
        self::assertSame(600, $gate->policy('llm')->peek('none')->remaining);
        $this->assertError('unknown_policy', fn () => $gate->checkAll(new Check('llm', 'a'), new Check('none', 'a')));
    }

    public function testAnAnswerThatIsNoDecisionIsAnError(): void
    {
        $bodies = [
            '', '1', '{}', '[]', '{"allowed":true}', '{"answers":{}}', '{"allowed":false,"refused":7,"answers":[]}',
        ];
        foreach ($bodies as $body) {
            $server = new HttpServer(__DIR__ . '/Support/odd.php', ['BODY' => $body]);
            $gate = HttpGate::at($server->url, timeoutMs: Gates::DEADLINE_MS);
            $this->assertError('server', fn () => $gate->policy('a')->check('k'));
            $this->assertError('server', fn () => $gate->settle('a', 'k', 'i', 1, 1));
            $this->assertError('server', fn () => $gate->explain('a', 'k'));
            $this->assertError('server', fn () => $gate->checkEach(new Check('a', 'k')));
            $this->assertError('server', fn () => $gate->checkAll(new Check('a', 'k')));
        }
    }

    /** @return iterable<string, array{array<string, mixed>, list<string>}> */
    public static function noDecisions(): iterable
    {
        $numbers = ['granted', 'wait_us', 'limit', 'remaining', 'reset_after_us', 'retry_after_us', 'held_us'];
        foreach ($numbers as $number) {
            foreach ([-1, 9_007_199_254_740_992, 1.5, 1e30, '1', true, [], [1]] as $value) {
                yield "$number is " . json_encode($value) => [[$number => $value], []];
            }
        }
        foreach ([...array_slice($numbers, 0, 6), 'allowed', 'rule'] as $missing) {
            yield "no $missing" => [[], [$missing]];
        }
        foreach (['allowed' => 1, 'rule' => 7, 'mode' => 7, 'overflow' => ['shadow']] as $name => $value) {
            yield "$name is " . json_encode($value) => [[$name => $value], []];
        }
        yield 'tag is 3' => [['overflow' => 'degrade', 'tag' => 3], []];
        $response = ['status' => 203, 'headers' => ['x-a' => 'b'], 'body' => 'cached'];
        $wrong = [
            ['status' => '203'], ['status' => -1], ['headers' => 'x'], ['headers' => ['a' => 1]],
            ['headers' => ['a' => []]], ['body' => null], ['body' => []],
        ];
        foreach ([7, 'x', [], ...$wrong] as $value) {
            $with = is_array($value) && $value !== [] ? $value + $response : $value;
            yield 'response is ' . json_encode($value) => [['overflow' => 'degrade', 'response' => $with], []];
        }
        yield 'target is 3' => [['overflow' => 'divert', 'target' => 3], []];
    }

    /**
     * @dataProvider noDecisions
     * @param array<string, mixed> $wrong
     * @param list<string> $missing
     */
    public function testAMemberThatIsMissingOrWrongMakesItNoDecision(array $wrong, array $missing): void
    {
        $gate = $this->odd();
        $decision = $wrong + array_diff_key(self::GOOD, array_flip($missing));
        $this->answer($decision);
        $this->assertError('server', fn () => $gate->policy('a')->check('k'));
        $this->answer(['answers' => [$decision]]);
        $this->assertError('server', fn () => $gate->checkEach(new Check('a', 'k')));
        $this->answer(['allowed' => true, 'answers' => [$decision]]);
        $this->assertError('server', fn () => $gate->checkAll(new Check('a', 'k')));
        $settled = ['refunded' => 0, 'taken' => 0, 'missing' => 0];
        $this->answer($settled + ['decision' => $decision]);
        $this->assertError('server', fn () => $gate->settle('a', 'k', 'i', 1, 1));
    }

    public function testAnswersBesideADecisionThatAreWrongAreErrors(): void
    {
        $gate = $this->odd();
        $this->answer(self::GOOD);
        self::assertSame(4, $gate->policy('a')->check('k')->remaining);
        $settled = ['refunded' => 0, 'taken' => 0, 'missing' => 0, 'decision' => self::GOOD];
        $this->answer($settled);
        self::assertSame(0, $gate->settle('a', 'k', 'i', 1, 1)->taken);
        foreach (['refunded', 'taken', 'missing'] as $number) {
            foreach ([-1, null, '1', []] as $value) {
                $this->answer([$number => $value] + $settled);
                $this->assertError('server', fn () => $gate->settle('a', 'k', 'i', 1, 1));
            }
        }
        $rule = ['name' => 'r', 'algorithm' => 'sliding_log', 'limit' => 5];
        $why = [
            'policy' => 'a', 'would_charge' => 1, 'rules_of' => 'policy', 'overflow' => 'reject',
            'on_store_failure' => 'local', 'decision' => self::GOOD, 'rules' => [$rule],
        ];
        $this->answer($why);
        self::assertNull($gate->explain('a', 'k')->rules[0]->remaining);
        $left = ['allowed' => true, 'remaining' => -1, 'retry_after_us' => 0, 'reset_after_us' => 0];
        $wrong = [
            ['would_charge' => 'x'], ['would_charge' => -1], ['rules_of' => null], ['overflow' => 1], ['app' => []],
            ['on_store_failure' => 'maybe'], ['on_store_failure' => 4], ['decision' => 1], ['rules' => 'x'],
            ['apps' => 'x'], ['apps' => [1]], ['rules' => [1]], ['rules' => [['limit' => -1] + $rule]],
            ['rules' => [['name' => 1] + $rule]],
            ['rules' => [$rule + ['left' => 1]]], ['rules' => [$rule + ['left' => $left]]],
        ];
        foreach ($wrong as $with) {
            $this->answer($with + $why);
            $this->assertError('server', fn () => $gate->explain('a', 'k'));
        }
        foreach (['x', [1], [null], ['a' => self::GOOD], []] as $answers) {
            $this->answer(['answers' => $answers]);
            $this->assertError('server', fn () => $gate->checkEach(new Check('a', 'k')));
            $this->answer(['allowed' => false, 'refused' => 0, 'answers' => $answers]);
            $this->assertError('server', fn () => $gate->checkAll(new Check('a', 'k')));
        }
        foreach ([-1, '0', [], 1e30] as $refused) {
            $this->answer(['allowed' => false, 'refused' => $refused, 'answers' => [self::GOOD]]);
            $this->assertError('server', fn () => $gate->checkAll(new Check('a', 'k')));
        }
        $this->answer(['answers' => [['detail' => 'x', 'status' => 'y']]]);
        $this->assertError('server', fn () => $gate->checkEach(new Check('a', 'k')));
    }

    /** @return iterable<string, array{string}> */
    public static function transports(): iterable
    {
        yield 'curl' => ['byCurl'];
        yield 'streams' => ['byStream'];
    }

    /** @dataProvider transports */
    public function testOfAnAnswerEightMegabytesAreReadAtMost(string $transport): void
    {
        $this->odd();
        $http = new Http(self::$odd->url, null, Gates::DEADLINE_MS);
        $post = (new ReflectionMethod(Http::class, $transport))->getClosure($http);
        file_put_contents(self::oddFile(), str_repeat('x', Http::BODY_MAX));
        [$status, , $body] = $post('/v1/check', '{}', ['Content-Type: application/json'], Gates::DEADLINE_MS);
        self::assertSame([200, Http::BODY_MAX], [$status, strlen($body)]);
        unset($body);
        foreach ([str_repeat('x', Http::BODY_MAX + 1), '*40'] as $text) {
            file_put_contents(self::oddFile(), $text);
            memory_reset_peak_usage();
            $before = memory_get_usage();
            try {
                $post('/v1/check', '{}', ['Content-Type: application/json'], Gates::DEADLINE_MS);
                self::fail('it is read');
            } catch (ServerProblem $e) {
                self::assertSame([200, 'the answer is longer than 8388608 bytes'], [$e->status, $e->detail]);
            }
            self::assertLessThan(40_000_000, memory_get_peak_usage() - $before);
        }
    }

    /** @dataProvider transports */
    public function testAnAnswerThatDripsEndsAtTheTimeout(string $transport): void
    {
        $server = new Drip("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", str_repeat(' ', 100), 50_000);
        $http = new Http("http://127.0.0.1:$server->port", null, 300);
        $post = (new ReflectionMethod(Http::class, $transport))->getClosure($http);
        $begin = hrtime(true);
        try {
            $post('/v1/check', '{}', ['Content-Type: application/json'], 300);
            self::fail('it is awaited');
        } catch (StoreUnavailable $e) {
            self::assertTrue($e->perhapsCharged);
        }
        self::assertLessThan(2.5, (hrtime(true) - $begin) / 1e9);
    }

    /** @return iterable<string, array{string, ?string, string}> */
    public static function notServers(): iterable
    {
        $http = 'is not a URL; expected one that begins with http:, https: or http+unix:, and has no query';
        $any = 'is not a URL; expected one that begins with http:, https:, resp:, resps: or unix:';
        yield 'no host' => ['http://', null, "server: `http://` $http"];
        yield 'a port' => ['http://h:65536', null, "server: `http://h:65536` $http"];
        yield 'a bracket' => ['http://[::1', null, "server: `http://[::1` $http"];
        yield 'a blank' => ['http://a b', null, "server: `http://a b` $http"];
        yield 'a query' => ['http://h:1/p?token=s3cret', null, "server: `http://h:1/p` $http"];
        yield 'a user of RESP' => ['resp://u:s3cret@h:1', null, "server: `resp://***@h:1` $any"];
        yield 'a port of RESP' => ['resp://h:65536', null, "server: `resp://h:65536` $any"];
        $token = 'token: has a character that a header field cannot have';
        yield 'a line' => ['http://h', "s3cret\r\nX: y", $token];
        yield 'a NUL' => ['http://h', "s3cret\0", $token];
    }

    /** @dataProvider notServers */
    public function testAnAddressOfNoServerIsFoundAtTheStart(string $url, ?string $token, string $message): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($message);
        Gate::remote($url, $token);
    }

    public function testAReplyOfRespThatIsWrongIsNoDecision(): void
    {
        $good = [1, 5, 4, 0, 1, 0, 'r', 'store'];
        $wrong = [
            null, false, 'OK', 1, [], [1], array_slice($good, 0, 7), [2] + $good, ['1'] + $good, [1 => -1] + $good,
            [1 => PHP_INT_MAX] + $good, [2 => null] + $good, [3 => -2] + $good, [3 => PHP_INT_MAX] + $good,
            [4 => -1] + $good, [5 => PHP_INT_MAX] + $good, [6 => 7] + $good, [7 => []] + $good,
            [...$good, 7], [...$good, 'degrade', 7], [...$good, 'degrade', 'x', 'y'],
        ];
        foreach ($wrong as $reply) {
            !is_array($reply) || ksort($reply);
            $runner = new FixedRunner($reply);
            $gate = Gate::of(new RespDecider($runner, '', 50));
            $this->assertError('server', fn () => $gate->policy('a')->check('k'));
        }
        $gate = Gate::of(new RespDecider(new FixedRunner($good), '', 50));
        self::assertSame(4, $gate->policy('a')->check('k')->remaining);
    }

    public function testAnErrorOfAServerSaysWhetherTheRequestWasCharged(): void
    {
        $check = static function (string $of, string $charged, callable $call): void {
            try {
                $call();
            } catch (SluicegateException $e) {
                self::assertSame($charged, $e->charged()->value, $of);
                $isDoubt = ['not_charged' => false, 'perhaps_charged' => true][$e->errorName] ?? $charged !== 'no';
                self::assertSame($charged !== 'no', $isDoubt, $of);
                return;
            }
            self::fail("no error: $of");
        };
        $gate = $this->odd();
        $problems = Vectors::wire('problems.json');
        self::assertGreaterThan(19, count($problems));
        foreach ($problems as ['status' => $status, 'body' => $body, 'charged' => $charged]) {
            file_put_contents(self::oddFile(), "!$status $body");
            $check($body, $charged, fn () => $gate->policy('a')->check('k'));
            $check($body, $charged, fn () => $gate->settle('a', 'k', 'id', 2, 1));
            $check($body, $charged, fn () => $gate->checkAll(new Check('a', 'k')));
        }
        $replies = Vectors::wire('error-replies.json');
        self::assertGreaterThan(11, count($replies));
        foreach ($replies as ['reply' => $reply, 'charged' => $charged]) {
            $gate = Gate::of(new RespDecider(new FixedRunner(new ErrorReply(trim($reply, "-\r\n"))), '', 50));
            $check($reply, $charged, fn () => $gate->policy('a')->check('k'));
        }
    }

    public function testWhatAServerSaysIsCut(): void
    {
        $gate = $this->odd();
        $long = str_repeat('é', 100_000);
        foreach (['urn:x' => 'server', 'urn:sluicegate:problem:no-store' => 'perhaps_charged'] as $type => $name) {
            $this->answer(['answers' => [['type' => $type, 'status' => 503, 'detail' => "a$long"]]]);
            $error = $gate->checkEach(new Check('a', 'k'))[0];
            self::assertInstanceOf(SluicegateException::class, $error);
            self::assertSame($name, $error->errorName);
            self::assertStringContainsString('aéééé', $error->getMessage());
            self::assertLessThan(1100, strlen($error->getMessage()));
            self::assertStringContainsString('…', $error->getMessage());
            self::assertTrue((bool) preg_match('//u', $error->getMessage()));
        }
    }

    /** A gate at a server that sends the answers of the test. */
    private function odd(): HttpGate
    {
        self::$odd ??= new HttpServer(__DIR__ . '/Support/odd.php', ['FILE' => self::oddFile()]);
        return HttpGate::at(self::$odd->url, timeoutMs: Gates::DEADLINE_MS);
    }

    /** @param array<mixed> $answer */
    private function answer(array $answer): void
    {
        file_put_contents(self::oddFile(), (string) json_encode($answer));
    }

    private static function oddFile(): string
    {
        return sys_get_temp_dir() . '/sgodd' . getmypid();
    }

    private function server(): HttpGate
    {
        return HttpGate::at($this->url('http'), timeoutMs: Gates::DEADLINE_MS);
    }

    public function testAServerIsReachedByUnixSockets(): void
    {
        RedisServer::require();
        Server::require();
        $dir = sys_get_temp_dir() . '/sgunix' . getmypid();
        mkdir($dir, 0700);
        $server = new Server(self::POLICIES, [
            'SLUICEGATE__RESP__LISTEN' => "127.0.0.1:0,unix:$dir/resp",
            'SLUICEGATE__HTTP__LISTEN' => "127.0.0.1:0,unix:$dir/http",
        ], listen: false);
        self::assertSame(999, Gates::remote("unix:$dir/resp")->policy('llm')->check('u')->remaining);
        self::assertSame(998, Gates::remote("http+unix:$dir/http")->policy('llm')->check('u')->remaining);
        unset($server);
        array_map(unlink(...), glob("$dir/*") ?: []);
        rmdir($dir);
    }

    /** @dataProvider ways */
    public function testAReplyThatIsLostIsChargedOnce(string $way): void
    {
        $url = $this->url($way);
        $proxy = new Proxy((int) substr($url, strrpos($url, ':') + 1));
        $plain = Gates::remote($url)->policy('llm');
        self::assertSame(999, $plain->check("lost $way")->remaining);
        foreach (['loseNextReply', 'holdNextReply'] as $number => $fault) {
            // A second is short for a reply that never comes, and long for one that does.
            $timeout = $fault === 'holdNextReply' ? 1000 : Gates::DEADLINE_MS;
            $llm = Gate::remote("$way://127.0.0.1:$proxy->port", timeoutMs: $timeout)->policy('llm');
            $proxy->$fault();
            try {
                $llm->check("lost $way");
                self::fail("no error after $fault");
            } catch (StoreUnavailable $e) {
                self::assertTrue($e->perhapsCharged, $fault);
            }
            self::assertSame(998 - $number, $plain->peek("lost $way")->remaining, $fault);
        }
        unset($proxy);
        try {
            $llm->check('a');
            self::fail('no error');
        } catch (StoreUnavailable $e) {
            self::assertContains($e->errorName, ['not_charged', 'perhaps_charged']);
        }
        $this->assertError('not_charged', fn () => Gate::remote("$way://127.0.0.1:1")->policy('llm')->check('a'));
    }

    private function url(string $way): string
    {
        RedisServer::require();
        Server::require();
        self::$server ??= new Server(self::POLICIES);
        return "$way://" . self::$server->address($way);
    }

    private function assertError(string $name, callable $act, ?string $message = null): void
    {
        try {
            $act();
            self::fail("no error `$name`");
        } catch (SluicegateException $e) {
            self::assertSame($name, $e->errorName, $e->getMessage());
            self::assertSame($message ?? $e->getMessage(), $e->getMessage());
        }
    }
}
