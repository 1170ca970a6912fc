<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Outcome;

/**
 * The decision of Redis.
 *
 * @internal
 */
final readonly class Answer
{
    /**
     * @param Outcome $outcome its place is that of the deciding rule among the request's own; 0 if the request does not
     *   have that rule (a later version of the policy decided)
     * @param int $limit the limit of the deciding rule
     * @param array<int, int> $inUse permits in use of the request's own rules, by place, where Redis reported them
     * @param list<int> $charged the permits of a debt that were charged, for each of the request's rules
     */
    public function __construct(
        public Outcome $outcome,
        public int $limit,
        public array $inUse,
        public array $charged,
    ) {
    }
}
