<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\Charged;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\FallbackResponse;
use Sluicegate\Health;
use Sluicegate\HealthStatus;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\ErrorReply;
use Sluicegate\Redis\Runner;
use Sluicegate\Verb;

/**
 * Decides by a server over RESP, the protocol of Redis: for servers on the same host or nearby.
 *
 * @internal
 */
final class RespDecider extends Decider
{
    public function __construct(
        private readonly Runner $runner,
        private readonly string $app,
        private readonly int $timeoutMs,
        private readonly ServerLog $log = new ServerLog('', null),
    ) {
    }

    public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        try {
            $decision = $this->send($policy, $limit, $key, $request);
        } catch (SluicegateException $e) {
            $this->log->failed($policy, $e);
            throw $e;
        }
        $this->log->answered($policy);
        return $decision;
    }

    public function warmUp(): void
    {
        $this->health([]);
    }

    public function health(array $policies): Health
    {
        try {
            $reply = $this->runner->run('', ['PING'], 1000 * $this->timeoutMs);
        } catch (ConnectionFailure $e) {
            return new Health(HealthStatus::Down, $this->log->address, $e->getMessage());
        }
        return $reply instanceof ErrorReply
            ? new Health(HealthStatus::Down, $this->log->address, $reply->message)
            : $this->healthOf($policies, $this->log->address);
    }

    private function send(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        if ($limit !== null) {
            throw InvalidRequest::rules('a limit that is made in code needs a gate in direct mode');
        }
        $verb = $request->verb;
        if ($verb === Verb::AtMost) {
            throw InvalidRequest::notOnThisWire($verb->text(), 'RESP');
        }
        $name = $verb === Verb::Reserve ? 'CHECK' : strtoupper($verb->text());
        $command = ["SG.$name", $policy, $key, ...($request->id === '' ? [] : [$request->id])];
        if ($verb->hasCost()) {
            array_push($command, 'COST', $request->cost);
        }
        if ($this->app !== '') {
            array_push($command, 'APP', $this->app);
        }
        if ($verb === Verb::Reserve) {
            array_push($command, 'MAXWAIT', intdiv($request->maxWaitUs ?? KernelRequest::MAX_WAIT_US, 1000));
        }
        $waitMs = $request->acquireWaitMs();
        if ($waitMs !== null) {
            array_push($command, 'MAXWAIT', $waitMs);
        }
        try {
            $leftMs = min($this->timeoutMs + ($waitMs ?? 0), Http::TIMEOUT_MAX_MS);
            $reply = $this->runner->run('', $command, 1000 * $leftMs);
        } catch (ConnectionFailure $e) {
            throw new StoreUnavailable($e->getMessage(), $e->sent, $e);
        }
        if ($reply instanceof ErrorReply) {
            $name = $waitMs === null ? $verb->text() : Verb::Wait->text();
            throw self::error($policy, $name, $reply);
        }
        if (is_array($reply)) {
            // phpredis returns false for null; no place of a reply is a boolean.
            $reply = array_map(static fn (mixed $place): mixed => $place === false ? null : $place, $reply);
        }
        if (is_array($reply) && ($reply[0] ?? null) === 0) {
            // Or it is not available to this app: the reply is the same for both.
            throw InvalidRequest::unknownPolicy($policy);
        }
        if (!is_array($reply) || !self::isDecision($reply)) {
            throw new ServerProblem(0, 'the reply is no decision');
        }
        return self::decision($policy, $verb, $request->cost, $reply);
    }

    private static function isDecision(array $reply): bool
    {
        if (!in_array($reply[0] ?? null, [1, -1], true)) {
            return false;
        }
        foreach ([1, 2, 3, 4, 5] as $place) {
            $number = $reply[$place] ?? null;
            // From place 3 on, they are times in ms, which become µs; -1 in place 3 means never.
            $max = $place < 3 ? KernelRequest::MAX_WAIT_US : intdiv(KernelRequest::MAX_WAIT_US, 1000);
            if (!is_int($number) || $number < ($place === 3 ? -1 : 0) || $number > $max) {
                return false;
            }
        }
        $isText = array_map(static fn (int $place): bool => is_string($reply[$place] ?? ''), [6, 7, 8, 9]);
        return count($reply) >= 8 && !in_array(false, $isText, true) && is_int($reply[10] ?? 0);
    }

    private static function decision(string $policy, Verb $verb, int $cost, array $reply): Decision
    {
        [$code, $limit, $remaining, $retryMs, $resetMs, $waitMs, $rule, $mode] = $reply;
        $kind = is_string($reply[8] ?? null) ? OverflowKind::tryFrom($reply[8]) : null;
        $detail = $reply[9] ?? null;
        $status = $reply[10] ?? null;
        $overflow = $kind === null ? null : new Overflow(
            $kind,
            tag: $kind === OverflowKind::Degrade && $status === null ? $detail : null,
            response: $status === null ? null : new FallbackResponse($status, [], (string) $detail),
            target: $kind === OverflowKind::Divert ? $detail : null,
        );
        $granted = $code === 1 && $kind === null && $verb !== Verb::Reset ? $cost : 0;
        $retryUs = $retryMs < 0 ? null : 1000 * $retryMs;
        $outcome = new Outcome($code === 1, 0, $granted, 1000 * $waitMs, $retryUs, $remaining, 1000 * $resetMs);
        $mode = Mode::tryFrom((string) $mode) ?? Mode::Store;
        return new Decision($outcome, $limit, $policy, (string) $rule, $mode, $overflow);
    }

    private static function error(
        string $policy,
        string $verb,
        ErrorReply $reply,
    ): InvalidRequest|StoreUnavailable|ServerProblem {
        [$word, $text] = [...explode(' ', ltrim($reply->message, '-'), 2), ''];
        $charged = Charged::ofWord($word);
        $exception = match (true) {
            str_starts_with($text, 'op: ') => InvalidRequest::unsupportedVerb($verb, $policy),
            str_starts_with($text, 'store: ') => StoreUnavailable::ofServer($text, $charged),
            default => new ServerProblem(0, $text === '' ? $word : $text),
        };
        return $exception->setCharged($charged);
    }
}
