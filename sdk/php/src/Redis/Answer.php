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
     * @param Outcome $outcome its place is that of the deciding rule among the asker's own; 0 if the asker does not
     *   have that rule (a later version of the policy decided)
     * @param int $limit the limit of the deciding rule
     * @param array<int, int> $inUse permits in use of the asker's own rules, by their place, where Redis reported them
     * @param list<int> $charged the permits of a debt that were charged, for each of the asker's rules
     */
    public function __construct(
        public Outcome $outcome,
        public int $limit,
        public array $inUse,
        public array $charged,
    ) {
    }
}
