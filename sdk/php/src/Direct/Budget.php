<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Decision;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\Redis\SealedRules;

/**
 * The budget of a key under a policy, or under a limit that is made in code, with all that a decision needs.
 *
 * @internal
 */
final readonly class Budget
{
    /**
     * @param string $policy the policy, or the name of the limit
     * @param string $stateKey the key of its state in Redis
     */
    public function __construct(
        public string $policy,
        public string $stateKey,
        public SealedRules $rules,
        public Overflow $overflow,
        public OnStoreFailure $onStoreFailure,
    ) {
    }

    /** Returns a decision without knowledge of the budget: no permits are left, and the reset is now. */
    public function unknown(Mode $mode, int $granted, int $retryAfterUs): Decision
    {
        $outcome = new Outcome($granted > 0, 0, $granted, 0, $retryAfterUs, 0, 0);
        return $this->decision($outcome, $this->rules->set->rules[0]->limit, $mode);
    }

    /** Returns an outcome as a decision; `$limit` is that of the deciding rule. */
    public function decision(Outcome $outcome, int $limit, Mode $mode): Decision
    {
        $set = $this->rules->set;
        $rule = $set->rules[$outcome->place]->name;
        return new Decision($outcome, $limit, $this->policy, $rule, $mode, quotas: $set->quotas);
    }
}
