<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Log;

/**
 * Logs what clients of a program do not see: that its server gives no decisions, and why.
 *
 * @internal
 */
final class ServerLog
{
    /** Problems that are not about one request: no token, a wrong one, and too many requests. */
    private const OF_ALL = [401, 403, 429];

    /** Errors that name a policy which this program cannot use. */
    private const OF_POLICY = ['unknown_policy', 'policy_not_available', 'app_missing'];

    /** @param string $address that of the server, without credentials */
    public function __construct(public readonly string $address, private readonly ?Log $log)
    {
    }

    /** Logs why a request has no decision, if operators can do something about it. */
    public function failed(string $policy, SluicegateException $exception): void
    {
        $isOfServer = $exception instanceof StoreUnavailable || ($exception instanceof ServerProblem && (
            $exception->status < 400 || $exception->status >= 500 || in_array($exception->status, self::OF_ALL, true)
        ));
        $cause = $exception->getMessage();
        if ($isOfServer) {
            $word = $exception instanceof ServerProblem ? (string) $exception->status : $exception->errorName;
            $text = "the server at $this->address gives no decision: $cause; requests get none";
            $this->log?->warn('server', $text, $word, true);
        } elseif ($exception instanceof InvalidRequest && in_array($exception->errorName, self::OF_POLICY, true)) {
            $text = "the server at $this->address has no policy `$policy` for this program: $cause";
            $this->log?->warn("policy:$policy", "$text; requests get no decision", ends: true);
        }
    }

    /**
     * Records that the server decided.
     *
     * @param string $policy empty: by the policies of a batch
     */
    public function answered(string $policy): void
    {
        $this->log?->recovered('server', "the server at $this->address decides again");
        if ($policy !== '') {
            $this->log?->recovered("policy:$policy", "the server at $this->address decides by policy `$policy` again");
        }
    }
}
