<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Decision;
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
        $outcome = $answer->outcome;
        $rule = $this->rules->set->rules[$answer->place];
        return new Decision(
            $outcome->allowed,
            $outcome->granted,
            $outcome->waitUs,
            $answer->limit,
            $outcome->remaining,
            $outcome->retryAfterUs,
            $outcome->resetAfterUs,
            $this->policy,
            $rule->name,
            $mode,
            quotas: $this->rules->set->quotas,
        );
    }

    /** A decision where nothing is known of the budget. */
    public function unknown(Mode $mode, int $granted, int $retryAfterUs): Decision
    {
        $rule = $this->rules->set->rules[0];
        return new Decision(
            $granted > 0,
            $granted,
            0,
            $rule->limit,
            0,
            $retryAfterUs,
            0,
            $this->policy,
            $rule->name,
            $mode,
            quotas: $this->rules->set->quotas,
        );
    }
}
