<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Decision;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\Redis\Answer;
use Sluicegate\Redis\SealedRules;

/**
 * The budget of a key under a policy, or under a limit that is made in code: what a decision needs to know of it.
 */
final readonly class Budget
{
    /**
     * @param string $policy the policy, or the name of the limit
     * @param string $stateKey where its state is
     */
    public function __construct(
        public string $policy,
        public string $stateKey,
        public SealedRules $rules,
        public Overflow $overflow,
        public OnStoreFailure $onStoreFailure,
    ) {
    }

    /** What Redis answered, as a decision. */
    public function decision(Answer $answer, Mode $mode): Decision
    {
        return $this->made($answer->outcome, $answer->place, $answer->limit, $mode);
    }

    /** A decision where nothing is known of the budget. */
    public function unknown(Mode $mode, int $granted, int $retryAfterUs): Decision
    {
        $outcome = new Outcome($granted > 0, 0, $granted, 0, $retryAfterUs, 0, 0);
        return $this->made($outcome, 0, $this->rules->set->rules[0]->limit, $mode);
    }

    /** The decision of the rule at a place. */
    public function made(Outcome $outcome, int $place, int $limit, Mode $mode): Decision
    {
        $set = $this->rules->set;
        return new Decision($outcome, $limit, $this->policy, $set->rules[$place]->name, $mode, quotas: $set->quotas);
    }
}
