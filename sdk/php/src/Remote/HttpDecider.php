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
use Sluicegate\Kernel\Ask;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Verb;

/**
 * Asks a server with JSON.
 *
 * @internal
 */
final class HttpDecider extends Decider
{
    /**
     * @param bool $hasToken whether requests have a token, which identifies their app
     * @param ServerLog $log logs why there are no decisions
     */
    public function __construct(
        private readonly Http $http,
        private readonly string $app,
        private readonly bool $hasToken,
        private readonly ServerLog $log = new ServerLog('', null),
    ) {
    }

    public function decide(string $policy, ?Limit $limit, string $key, Ask $ask): Decision
    {
        if ($limit !== null) {
            throw InvalidRequest::rules('a limit that is made in code needs a gate in direct mode');
        }
        $isReserve = $ask->verb === Verb::Reserve;
        $body = $this->about($policy, $key);
        $body += $ask->id === '' ? [] : ['id' => $ask->id];
        $body += $ask->verb->hasCost() ? ['cost' => $ask->cost] : [];
        $body += $isReserve ? ['max_wait_ms' => intdiv($ask->maxWaitUs ?? Ask::MAX_WAIT_US, 1000)] : [];
        [$answer, $fields] = $this->post($isReserve ? 'check' : $ask->verb->text(), $policy, $body);
        return self::decision($policy, $answer, $fields['ratelimit-policy'] ?? '');
    }

    /** Returns the members of a request that select its policy, key and app. */
    public function about(string $policy, string $key): array
    {
        $body = ['policy' => $policy];
        $body += $key === '' ? [] : ['key' => $key];
        return $body + ($this->app === '' ? [] : ['app' => $this->app]);
    }

    /**
     * Sends a request and returns the answer of the server.
     *
     * @param string $path the verb
     * @return array{Said, array<string, string>} the answer, and header fields
     * @throws SluicegateException if it is an error, or not valid
     */
    public function post(string $path, string $policy, array $body): array
    {
        try {
            $answer = $this->exchange($path, $policy, $body);
        } catch (SluicegateException $e) {
            $this->log->failed($policy, $e);
            throw $e;
        }
        $this->log->answered();
        return $answer;
    }

    public function warmUp(): void
    {
        $this->health([]);
    }

    public function health(array $policies): Health
    {
        try {
            $this->require($policies);
            $this->reach();
        } catch (SluicegateException $e) {
            return new Health(HealthStatus::Down, $this->log->address, $e->getMessage());
        }
        return new Health(HealthStatus::Up, $this->log->address);
    }

    /**
     * Asks for a batch of no checks, which a server refuses after it has read the token.
     *
     * @throws SluicegateException if the server does not answer, or does not accept the token
     */
    private function reach(): void
    {
        try {
            $this->exchange('check:batch', '', ['checks' => []]);
        } catch (ServerProblem $e) {
            if ($e->status !== 400) {
                throw $e;
            }
        }
    }

    /** @return array{Said, array<string, string>} */
    private function exchange(string $path, string $policy, array $body): array
    {
        $json = json_encode($body, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
        if ($json === false) {
            throw InvalidRequest::keyText();
        }
        [$status, $fields, $text] = $this->http->post("/v1/$path", $json);
        $answer = json_decode($text, true);
        if (!is_array($answer)) {
            throw new ServerProblem($status, 'the answer is no object of JSON');
        }
        return $status === 200 ? [Said::of($answer), $fields] : throw $this->problem($path, $policy, $status, $answer);
    }

    /**
     * Reads a decision of the server.
     *
     * @throws ServerProblem if it is not a decision
     */
    public static function decision(string $policy, Said $said, string $quotas): Decision
    {
        $with = $said->has('response') ? $said->object('response') : null;
        $overflow = !$said->has('overflow') ? null : new Overflow(
            OverflowKind::tryFrom($said->text('overflow')) ?? OverflowKind::Reject,
            tag: $said->has('tag') ? $said->text('tag') : null,
            response: $with === null
                ? null
                : new FallbackResponse($with->whole('status'), $with->texts('headers'), $with->text('body')),
            target: $said->has('target') ? $said->text('target') : null,
        );
        $outcome = new Outcome(
            $said->bool('allowed'),
            0,
            $said->whole('granted'),
            $said->whole('wait_us'),
            $said->wholeOrNull('retry_after_us'),
            $said->whole('remaining'),
            $said->whole('reset_after_us'),
        );
        return new Decision(
            $outcome,
            $said->whole('limit'),
            $policy,
            $said->text('rule'),
            $said->has('mode') ? Mode::tryFrom($said->text('mode')) ?? Mode::Store : Mode::Store,
            $overflow,
            $said->has('held_us') ? $said->whole('held_us') : 0,
            $quotas,
        );
    }

    /**
     * Returns the exception for a problem.
     *
     * @param string $verb the verb of the request
     */
    public function problem(string $verb, string $policy, int $status, array $problem): SluicegateException
    {
        $detail = is_string($problem['detail'] ?? null) ? SluicegateException::cut($problem['detail']) : 'no detail';
        $type = is_string($problem['type'] ?? null) ? $problem['type'] : '';
        $charged = Charged::ofProblem($problem['charged'] ?? null);
        $exception = match (true) {
            $type === 'urn:sluicegate:problem:unknown-policy' =>
                $policy === '' ? new InvalidRequest('unknown_policy', $detail) : InvalidRequest::unknownPolicy($policy),
            $type === 'urn:sluicegate:problem:not-configured' => $this->app === '' && !$this->hasToken
                ? new InvalidRequest('app_missing', $detail)
                : new InvalidRequest('policy_not_available', $detail),
            $type === 'urn:sluicegate:problem:no-store' => StoreUnavailable::said($detail, $charged),
            str_starts_with($detail, 'op: ') => $policy === ''
                ? new InvalidRequest('unsupported_verb', $detail)
                : InvalidRequest::unsupportedVerb($verb, $policy),
            default => new ServerProblem($status, $detail),
        };
        return $exception->saying($charged);
    }
}
