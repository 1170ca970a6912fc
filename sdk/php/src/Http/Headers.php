<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Sluicegate\Decision;
use Sluicegate\Mode;

/**
 * The header fields that report limits and remaining permits to clients.
 */
final class Headers
{
    private function __construct()
    {
    }

    /**
     * Returns `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), and `Retry-After` on
     * refusals that can pass later. Where nobody decided by the limit (modes `Allow`, `Deny`, `Shed`) there is only the
     * last.
     *
     * @param bool $withOld whether to add `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now)
     * @return array<string, string>
     */
    public static function of(Decision $decision, bool $withOld = false): array
    {
        $retry = $decision->allowed ? null : $decision->retryAfterSeconds();
        $reset = $retry ?? $decision->resetAfterSeconds();
        $headers = in_array($decision->mode, [Mode::Allow, Mode::Deny, Mode::Shed], true) ? [] : [
            'RateLimit-Policy' => $decision->quotas ?: "\"$decision->rule\";q=$decision->limit",
            'RateLimit' => "\"$decision->rule\";r=$decision->remaining;t=$reset",
        ];
        if ($withOld && $headers !== []) {
            $headers['X-RateLimit-Limit'] = (string) $decision->limit;
            $headers['X-RateLimit-Remaining'] = (string) $decision->remaining;
            $headers['X-RateLimit-Reset'] = (string) $reset;
        }
        if ($retry !== null) {
            $headers['Retry-After'] = (string) $retry;
        }
        return $headers;
    }
}
