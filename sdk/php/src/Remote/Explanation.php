<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decision;
use Sluicegate\OnStoreFailure;

/**
 * What a check would now come to, and why.
 */
final readonly class Explanation
{
    /**
     * @param Decision $decision what a check would get
     * @param int $wouldCharge the permits that it would take of each rule; 0 if it would be refused
     * @param bool $isOverride whether the key has rules of its own
     * @param string $overflow what the policy makes of a request over the limit: `reject`, `queue`, `degrade`, `divert`
     *   or `shadow`
     * @param OnStoreFailure $onStoreFailure what is decided while the store does not answer
     * @param string|null $app the app that asks; null: none
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
