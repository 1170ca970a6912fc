<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\OverflowKind;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

final class RemoteTest extends TestCase
{
    private const POLICIES = [
        ['name' => 'llm', 'rules' => [['name' => 'tokens', 'token_bucket' => ['rate' => '1000/d', 'burst' => 1000]]]],
        ['name' => 'jobs', 'rules' => [['name' => 'running', 'concurrency' => ['limit' => 2, 'ttl' => '5m']]]],
        ['name' => 'import', 'apps' => ['partner'], 'rules' => [['sliding_log' => ['limit' => 9, 'window' => '1h']]]],
        ['name' => 'old', 'rules' => [['sliding_log' => ['limit' => 1, 'window' => '1h']]], 'overflow' => [
            'degrade' => ['response' => ['status' => 203, 'body' => 'cached', 'headers' => ['x-a' => 'b']]],
        ]],
    ];

    private static ?Server $server = null;

    public static function tearDownAfterClass(): void
    {
        self::$server = null;
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
        $gate = Gate::remote($this->url($way));
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
        $gate->policy('old')->check($way);
        $over = $gate->policy('old')->check($way);
        self::assertSame([false, OverflowKind::Degrade], [$over->allowed, $over->overflow?->kind]);
        self::assertSame([203, 'cached'], [$over->overflow?->response?->status, $over->overflow?->response?->body]);
        self::assertTrue(Gate::remote($this->url($way), app: 'partner')->policy('import')->check($way)->allowed);
        $error = $way === 'http' ? 'policy_not_available' : 'unknown_policy';
        $this->assertError($error, fn () => Gate::remote($this->url($way), app: 'web')
            ->policy('import')->check($way));
        $this->assertError('unknown_policy', fn () => $gate->policy('none')->check($way));
        $this->assertError('unsupported_verb', fn () => $gate->policy('llm')->acquire($way));
        $this->assertError('rules', fn () => $gate->limit('a', Limit::slidingLog(1, '1h'))->check($way));
    }

    public function testAtMostIsThereOverHttp(): void
    {
        self::assertSame(1000, Gate::remote($this->url('http'))->policy('llm')->atMost('most', 3000)->granted);
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
        self::assertSame(999, Gate::remote("unix:$dir/resp")->policy('llm')->check('u')->remaining);
        self::assertSame(998, Gate::remote("http+unix:$dir/http")->policy('llm')->check('u')->remaining);
        unset($server);
        array_map(unlink(...), glob("$dir/*") ?: []);
        rmdir($dir);
    }

    /** @dataProvider ways */
    public function testAReplyThatIsLostIsChargedOnce(string $way): void
    {
        $url = $this->url($way);
        $proxy = new Proxy((int) substr($url, strrpos($url, ':') + 1));
        $llm = Gate::remote("$way://127.0.0.1:$proxy->port")->policy('llm');
        self::assertSame(999, $llm->check("lost $way")->remaining);
        foreach (['loseNextReply', 'holdNextReply'] as $number => $fault) {
            $proxy->$fault();
            try {
                $llm->check("lost $way");
                self::fail("no error after $fault");
            } catch (StoreUnavailable $e) {
                self::assertTrue($e->perhapsCharged, $fault);
            }
            usleep(400_000);
            self::assertSame(998 - $number, $llm->peek("lost $way")->remaining, $fault);
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

    private function assertError(string $name, callable $act): void
    {
        try {
            $act();
            self::fail("no error `$name`");
        } catch (SluicegateException $e) {
            self::assertSame($name, $e->errorName, $e->getMessage());
        }
    }
}
