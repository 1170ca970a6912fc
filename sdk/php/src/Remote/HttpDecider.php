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
use Sluicegate\Verb;

/**
 * Decides by a server, with JSON over HTTP.
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

    public function decide(string $policy, ?Limit $limit, string $key, KernelRequest $request): Decision
    {
        if ($limit !== null) {
            throw InvalidRequest::rules('a limit that is made in code needs a gate in direct mode');
        }
        $isReserve = $request->verb === Verb::Reserve;
        $body = $this->body($policy, $key);
        $body += $request->id === '' ? [] : ['id' => $request->id];
        $body += $request->verb->hasCost() ? ['cost' => $request->cost] : [];
        $body += $isReserve ? ['max_wait_ms' => intdiv($request->maxWaitUs ?? KernelRequest::MAX_WAIT_US, 1000)] : [];
        $waitMs = $request->acquireWaitMs();
        $body += $waitMs === null ? [] : ['max_wait_ms' => $waitMs];
        [$answer, $fields] = $this->post($isReserve ? 'check' : $request->verb->text(), $policy, $body, $waitMs ?? 0);
        return self::decision($policy, $answer, $fields['ratelimit-policy'] ?? '');
    }

    /** Returns the members of a request that select its policy, key and app. */
    public function body(string $policy, string $key): array
    {
        $body = ['policy' => $policy];
        $body += $key === '' ? [] : ['key' => $key];
        return $body + ($this->app === '' ? [] : ['app' => $this->app]);
    }

    /**
     * Sends a request and returns the answer of the server.
     *
     * @param string $path the verb
     * @param int $waitMs the time that the server may hold the request back, beside the timeout
     * @return array{ResponseFields, array<string, string>} the answer, and header fields
     * @throws SluicegateException if it is an error, or not valid
     */
    public function post(string $path, string $policy, array $body, int $waitMs = 0): array
    {
        try {
            $answer = $this->exchange($path, $policy, $body, $waitMs);
        } catch (SluicegateException $e) {
            $this->log->failed($policy, $e);
            throw $e;
        }
        $this->log->answered($policy);
        return $answer;
    }

    public function warmUp(): void
    {
        $this->health([]);
    }

    public function health(array $policies): Health
    {
        try {
            $this->reach();
        } catch (SluicegateException $e) {
            return new Health(HealthStatus::Down, $this->log->address, $e->getMessage());
        }
        return $this->healthOf($policies, $this->log->address);
    }

    /**
     * Sends a batch of no checks, which a server refuses after it has read the token.
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

    /** @return array{ResponseFields, array<string, string>} */
    private function exchange(string $path, string $policy, array $body, int $waitMs = 0): array
    {
        $json = json_encode($body, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
        if ($json === false) {
            throw InvalidRequest::keyText();
        }
        [$status, $fields, $text] = $this->http->post("/v1/$path", $json, $waitMs);
        $answer = json_decode($text, true);
        if (!is_array($answer)) {
            throw new ServerProblem($status, 'the answer is no object of JSON');
        }
        $verb = $path === 'acquire' && isset($body['max_wait_ms']) ? Verb::Wait->text() : $path;
        return $status === 200
            ? [ResponseFields::of($answer), $fields]
            : throw $this->problem($verb, $policy, $status, $answer);
    }

    /**
     * Reads a decision of the server.
     *
     * @throws ServerProblem if it is not a decision
     */
    public static function decision(string $policy, ResponseFields $answer, string $quotas): Decision
    {
        $response = $answer->has('response') ? $answer->object('response') : null;
        $overflow = !$answer->has('overflow') ? null : new Overflow(
            OverflowKind::tryFrom($answer->text('overflow')) ?? OverflowKind::Reject,
            tag: $answer->has('tag') ? $answer->text('tag') : null,
            response: $response === null
                ? null
                : new FallbackResponse(
                    $response->whole('status'),
                    $response->texts('headers'),
                    $response->text('body'),
                ),
            target: $answer->has('target') ? $answer->text('target') : null,
        );
        $outcome = new Outcome(
            $answer->bool('allowed'),
            0,
            $answer->whole('granted'),
            $answer->whole('wait_us'),
            $answer->wholeOrNull('retry_after_us'),
            $answer->whole('remaining'),
            $answer->whole('reset_after_us'),
        );
        return new Decision(
            $outcome,
            $answer->whole('limit'),
            $policy,
            $answer->text('rule'),
            $answer->has('mode') ? Mode::tryFrom($answer->text('mode')) ?? Mode::Store : Mode::Store,
            $overflow,
            $answer->has('held_us') ? $answer->whole('held_us') : 0,
            $quotas,
        );
    }

    /**
     * Returns the exception for a problem.
     *
     * @param string $verb the verb of the request, as errors name it
     */
    public function problem(string $verb, string $policy, int $status, array $problem): SluicegateException
    {
        $detail = is_string($problem['detail'] ?? null)
            ? SluicegateException::truncate($problem['detail'])
            : 'no detail';
        $type = is_string($problem['type'] ?? null) ? $problem['type'] : '';
        $charged = Charged::ofProblem($problem['charged'] ?? null);
        $exception = match (true) {
            $type === 'urn:sluicegate:problem:unknown-policy' =>
                $policy === '' ? new InvalidRequest('unknown_policy', $detail) : InvalidRequest::unknownPolicy($policy),
            $type === 'urn:sluicegate:problem:not-configured' => $this->app === '' && !$this->hasToken
                ? new InvalidRequest('app_missing', $detail)
                : new InvalidRequest('policy_not_available', $detail),
            $type === 'urn:sluicegate:problem:no-store' => StoreUnavailable::ofServer($detail, $charged),
            str_starts_with($detail, 'op: ') => $policy === ''
                ? new InvalidRequest('unsupported_verb', $detail)
                : InvalidRequest::unsupportedVerb($verb, $policy),
            default => new ServerProblem($status, $detail),
        };
        return $exception->setCharged($charged);
    }
}
