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
     * @param int|null $place the asker's own rule that decided; null: a later version decided by a rule that the
     *   asker does not have
     * @param int $limit of the deciding rule
     * @param list<int> $charged of each of the asker's rules, the permits of a debt that were charged
     */
    public function __construct(
        public Outcome $outcome,
        public ?int $place,
        public int $limit,
        public array $charged,
    ) {
    }
}
