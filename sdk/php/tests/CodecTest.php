<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Limit;
use Sluicegate\Redis\ErrorReply;
use Sluicegate\Redis\FailureKind;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\Reply;
use Sluicegate\Redis\Request;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Redis\StoreFailure;
use Sluicegate\Redis\TimeSource;
use Sluicegate\Rules\Fnv;
use Sluicegate\Verb;

final class CodecTest extends TestCase
{
    /** The example of redis-protocol.md. */
    public function testWhatAnErrorOfRedisComesTo(): void
    {
        $place = 'ERR Error running script (call to f_0a): @user_script:8: ';
        $table = [
            "OOM command not allowed" => [FailureKind::NoAnswer, false],
            "@user_script: 8: -OOM command not allowed" => [FailureKind::NoAnswer, false],
            "$place@user_script: 8: -OOM command not allowed" => [FailureKind::NoAnswer, false],
            "$place@user_script: 8: -READONLY You can't write" => [FailureKind::NoAnswer, false],
            "$place@user_script: 8: attempt to index a nil value" => [FailureKind::NoAnswer, true],
            'WRONGTYPE Operation against a key' => [FailureKind::ThisKey, false],
            "READONLY You can't write" => [FailureKind::NoAnswer, false],
            'LOADING Redis is loading' => [FailureKind::NoAnswer, false],
            'ERR unknown command' => [FailureKind::NoAnswer, true],
            'nothing that Redis says' => [FailureKind::NoAnswer, true],
        ];
        foreach ($table as $message => [$kind, $perhapsCharged]) {
            $failure = StoreFailure::of(new ErrorReply($message));
            self::assertSame([$kind, $perhapsCharged], [$failure->kind, $failure->perhapsCharged], $message);
        }
    }

    public function testTheExampleOfTheProtocolIsEqualToTheByte(): void
    {
        $limit = Limit::rules([['name' => 'minute', 'fixed_window' => ['limit' => 10, 'window' => '1m']]]);
        $rules = SealedRules::ofPolicy('orders', $limit->rules, 1_767_225_600_000 + 60_000);
        self::assertSame('sg:{WYSeHag-hqRckSRns0jV-w}', Keys::state('orders', 'alice'));
        self::assertSame(
            '060b0002000105050128cdd20eaf134a050000000000002440000000000000000000000000389c8c4100000000000000000000'
            . '0000000000009e5667e13a8860ea000000',
            bin2hex($rules->blob),
        );
        self::assertSame('sg:rules:amVe8lwjHh50SFePmz7I3w:9e5667e13a88', $rules->key);
        $ask = new KernelRequest(Verb::Check);
        self::assertSame('010001000000', bin2hex(Request::encode($ask, TimeSource::Server, 0, [null])));
    }

    public function testKeysAreThoseOfThePage(): void
    {
        self::assertSame('sg:{z2q2E-OUI5H4jtaYVX4WgA}', Keys::state('a', 'b'));
    }

    /** The published values of the 128-bit FNV-1a hash. */
    public function testIdsAreBigEndianHashes(): void
    {
        self::assertSame('6c62272e07bb014262b821756295c58d', bin2hex(Fnv::hash128('')));
        self::assertSame('d228cb696f1a8caf78912b704e4a8964', bin2hex(Fnv::hash128('a')));
        self::assertSame('343e1662793c64bf6f0d3597ba446f18', bin2hex(Fnv::hash128('foobar')));
    }

    public function testLimitsOfCallersComeBackFromTheirStates(): void
    {
        $several = Limit::rules([
            ['name' => 'a', 'token_bucket' => ['rate' => '7/3s', 'burst' => 11, 'initial' => 3]],
            ['name' => 'b', 'smooth_bursty' => ['rate' => '1/3s']],
            ['name' => 'c', 'fixed_window' => ['limit' => 4294967296, 'window' => '1d']],
        ]);
        foreach ([$several, Limit::tokenBucket('10/s')] as $limit) {
            $sealed = $limit->sealed;
            $read = SealedRules::atBeginOf($sealed->head . 'a state');
            self::assertSame(bin2hex($sealed->blob), bin2hex($read->blob ?? ''));
        }
    }

    public function testRepliesOfAnotherLengthAreNone(): void
    {
        $reply = "\1\0" . pack('V', 1) . str_repeat("\0", 21);
        self::assertNotNull(Reply::decode($reply, 1));
        self::assertNull(Reply::decode($reply . 'x', 1));
        self::assertNull(Reply::decode(substr($reply, 1), 1));
        self::assertNull(Reply::decode("\1\1" . substr($reply, 2), 1));
        self::assertNull(Reply::decode('', 1));
        self::assertNull(Reply::decode("\2x", 1, isSupported: false));
        self::assertNull(Reply::decode("\2", 1));
        self::assertNull(Reply::decode("\7", 1));
        $never = Reply::decode("\0\0" . pack('V', 0) . str_repeat("\xff", 7) . str_repeat("\0", 14), 1);
        self::assertNull($never?->outcome?->retryAfterUs);
        self::assertSame([5], Reply::decode($reply . pack('V', 5), 1, true)?->charged);
    }

    public function testAReplyOfSeveralRulesSaysWhatIsLeftOfEach(): void
    {
        $set = Limit::rules([
            ['name' => 'a', 'token_bucket' => ['rate' => '1/s', 'burst' => 9]],
            ['name' => 'b', 'fixed_window' => ['limit' => 70_000, 'window' => '1h']],
        ])->rules;
        $one = "\1\1" . pack('V', 1) . str_repeat("\0", 21);
        $reply = $one . substr(pack('P', 4), 0, 7) . substr(pack('P', 65536), 0, 7);
        self::assertSame([5, 4464], Reply::decode($reply, 2)?->inUse($set));
        self::assertNull(Reply::decode($one, 2), 'as one rule has it');
        self::assertNull(Reply::decode(substr($reply, 0, -7), 2), 'a rule less');
        self::assertNull(Reply::decode(substr($reply, 0, -1), 2));
        self::assertNull(Reply::decode($reply . str_repeat("\0", 7), 2), 'a rule more');
        self::assertNull(Reply::decode($one . str_repeat("\0", 7), 1));
        $paid = Reply::decode($reply . pack('VV', 5, 6), 2, true);
        self::assertSame([[5, 6], [5, 4464]], [$paid?->charged, $paid?->inUse($set)]);
        self::assertNull(Reply::decode($reply, 2, true));
        self::assertNull(Reply::decode($reply . pack('VV', 5, 6), 2));
        $below = substr($one, 0, 13) . self::left(-1) . substr($one, 20) . self::left(-3000) . self::left(-(1 << 53));
        self::assertSame([3009, 70_000 + (1 << 53)], Reply::decode($below, 2)?->inUse($set));
        self::assertSame(0, Reply::decode($below, 2)?->outcome?->remaining);
        $alone = Limit::fixedWindow(50, '1d')->rules;
        $below = substr($one, 0, 1) . "\0" . substr($one, 2, 11) . self::left(-2950) . substr($one, 20);
        self::assertSame([3000], Reply::decode($below, 1)?->inUse($alone));
        self::assertSame(0, Reply::decode($below, 1)?->outcome?->remaining);
        $more = $one . str_repeat(substr(pack('P', 1 << 53), 0, 7), 2);
        self::assertSame([0, 0], Reply::decode($more, 2)?->inUse($set), 'more left than the limit is');
    }

    private static function left(int $permits): string
    {
        return substr(pack('P', $permits), 0, 7);
    }
}
