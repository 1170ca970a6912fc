<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

use RuntimeException;
use Sluicegate\Decision;

/**
 * A refusal, for callers that want an exception. It is not a SluicegateException: it has a decision.
 */
final class LimitExceeded extends RuntimeException
{
    public function __construct(public readonly Decision $decision)
    {
        parent::__construct("limit exceeded: policy `$decision->policy`, rule `$decision->rule`");
    }
}
