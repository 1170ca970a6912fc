<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\SluicegateException;

/**
 * A request and its result, for metrics and traces. It does not contain the key.
 */
final readonly class Observation
{
    /**
     * @param string $policy the policy, or the name of a limit that is made in code
     * @param string $verb `check`, `reserve`, `at_most`, `peek`, `refund`, `reset`, `acquire`, `release` or `renew`;
     *   over HTTP also `settle` and `explain`
     * @param Decision|null $decision null if there is none
     * @param SluicegateException|null $error the reason if there is no decision
     * @param int $tookUs duration of the call, including the time in a queue
     */
    public function __construct(
        public string $policy,
        public string $verb,
        public ?Decision $decision,
        public ?SluicegateException $error,
        public int $tookUs,
    ) {
    }

    /** Returns `allowed`, `refused` or `error`. */
    public function result(): string
    {
        return $this->error !== null ? 'error' : ($this->decision?->allowed ? 'allowed' : 'refused');
    }

    /** Returns the name of the error, such as `not_charged`, a label of few values; empty if there is a decision. */
    public function errorName(): string
    {
        return $this->error?->errorName ?? '';
    }

    /** Returns the mode of the decision, such as `store`; empty if there is no decision. */
    public function mode(): string
    {
        return $this->decision?->mode->value ?? '';
    }
}
