<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Outcome;

/**
 * What Redis decided.
 */
final readonly class Answer
{
    /**
     * @param Outcome $outcome its place is that of the asker's own rule that decided; the first, if a later version
     *   decided by a rule that the asker does not have
     * @param int $limit of the deciding rule
     * @param array<int, int> $inUse permits in use of the asker's own rules, by their place, as far as Redis said it
     * @param list<int> $charged of each of the asker's rules, the permits of a debt that were charged
     */
    public function __construct(
        public Outcome $outcome,
        public int $limit,
        public array $inUse,
        public array $charged,
    ) {
    }
}
