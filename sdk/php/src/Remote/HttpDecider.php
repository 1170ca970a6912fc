<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decider;
use Sluicegate\Decision;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\FallbackResponse;
use Sluicegate\Kernel\Ask;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Verb;

/**
 * Asks a server with JSON.
 */
final class HttpDecider implements Decider
{
    /** The longest wait that a server takes, in ms. */
    private const MAX_WAIT_MS = 9_007_199_254_740;

    public function __construct(private readonly Http $http, private readonly string $app)
    {
    }

    public function decide(
        string $policy,
        ?Limit $limit,
        Verb $verb,
        string $key,
        int $cost,
        ?int $maxWaitUs,
        string $id,
    ): Decision {
        if ($limit !== null) {
            throw InvalidRequest::rules('a limit that is made in code needs a gate in direct mode');
        }
        $body = ['policy' => $policy];
        $body += $key === '' ? [] : ['key' => $key];
        $body += $this->app === '' ? [] : ['app' => $this->app];
        $body += $id === '' ? [] : ['id' => $id];
        $body += in_array($verb, [Verb::Reset, Verb::Release, Verb::Renew], true) ? [] : ['cost' => $cost];
        if ($verb === Verb::Reserve) {
            $body['max_wait_ms'] = min(intdiv($maxWaitUs ?? Ask::MAX_WAIT_US, 1000), self::MAX_WAIT_MS);
        }
        $json = json_encode($body, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
        if ($json === false) {
            throw new ServerProblem(0, 'key: is not UTF-8, which HTTP needs');
        }
        $path = $verb === Verb::Reserve ? 'check' : $verb->text();
        [$status, $fields, $text] = $this->http->post("/v1/$path", $json);
        $answer = json_decode($text, true);
        if (!is_array($answer)) {
            throw new ServerProblem($status, 'the answer is not JSON');
        }
        return $status === 200
            ? self::decision($policy, $answer, $fields['ratelimit-policy'] ?? '')
            : throw self::problem($policy, $this->app, $status, $answer);
    }

    public function keyOf(string $policy): ?array
    {
        return null;
    }

    public function close(float $seconds): void
    {
    }

    /** @param array<mixed> $answer */
    private static function decision(string $policy, array $answer, string $quotas): Decision
    {
        $response = $answer['response'] ?? null;
        $overflow = !isset($answer['overflow']) ? null : new Overflow(
            OverflowKind::tryFrom($answer['overflow']) ?? OverflowKind::Reject,
            tag: $answer['tag'] ?? null,
            response: is_array($response)
                ? new FallbackResponse($response['status'], $response['headers'], $response['body'])
                : null,
            target: $answer['target'] ?? null,
        );
        return new Decision(
            $answer['allowed'],
            $answer['granted'],
            $answer['wait_us'],
            $answer['limit'],
            $answer['remaining'],
            $answer['retry_after_us'],
            $answer['reset_after_us'],
            $policy,
            $answer['rule'],
            Mode::tryFrom($answer['mode'] ?? 'store') ?? Mode::Store,
            $overflow,
            $answer['held_us'] ?? 0,
            $quotas,
        );
    }

    /** @param array<mixed> $problem */
    private static function problem(string $policy, string $app, int $status, array $problem): SluicegateException
    {
        $detail = is_string($problem['detail'] ?? null) ? $problem['detail'] : 'no detail';
        $type = is_string($problem['type'] ?? null) ? $problem['type'] : '';
        return match (true) {
            $type === 'urn:sluicegate:problem:unknown-policy' => InvalidRequest::unknownPolicy($policy),
            $type === 'urn:sluicegate:problem:not-configured' => str_contains($detail, 'without an app')
                ? InvalidRequest::notAvailable($policy, '')
                : new InvalidRequest('policy_not_available', $detail),
            $type === 'urn:sluicegate:problem:no-store' => self::noStore($detail),
            str_starts_with($detail, 'op: ') => new InvalidRequest('unsupported_verb', $detail),
            default => new ServerProblem($status, $detail),
        };
    }

    private static function noStore(string $detail): StoreUnavailable
    {
        $cause = preg_replace('/^store: |; (nothing was charged|perhaps charged, not repeated)$/', '', $detail);
        return new StoreUnavailable((string) $cause, str_contains($detail, 'perhaps'));
    }
}
