<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decision;
use Sluicegate\OnStoreFailure;

/**
 * The decision that a check would get now, with its reasons.
 */
final readonly class Explanation
{
    /**
     * @param Decision $decision the decision that a check would get
     * @param int $wouldCharge the permits that it would take of each rule; 0 if it would be refused
     * @param bool $isOverride whether the key has rules of its own
     * @param string $overflow the action of the policy over the limit: `reject`, `queue`, `degrade`, `divert` or
     *   `shadow`
     * @param OnStoreFailure $onStoreFailure the decision while the store does not answer
     * @param string|null $app the app of the request; null: none
     * @param list<string>|null $apps those that may use the policy; null: all
     * @param list<ExplainedRule> $rules those of the key, in order
     */
    public function __construct(
        public Decision $decision,
        public int $wouldCharge,
        public bool $isOverride,
        public string $overflow,
        public OnStoreFailure $onStoreFailure,
        public ?string $app,
        public ?array $apps,
        public array $rules,
    ) {
    }
}
