<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * The decision of a set of rules, with the place of the deciding rule.
 *
 * @internal
 */
final readonly class Outcome
{
    /**
     * @param bool $allowed whether it passes
     * @param int $place the deciding rule, from 0
     * @param int $granted permits granted or given back; 0 if refused
     * @param int $waitUs time for which an allowed request must be held back
     * @param int|null $retryAfterUs 0 if allowed; null: never
     * @param int $remaining permits left under the deciding rule
     * @param int $resetAfterUs until that rule's budget is full
     */
    public function __construct(
        public bool $allowed,
        public int $place,
        public int $granted,
        public int $waitUs,
        public ?int $retryAfterUs,
        public int $remaining,
        public int $resetAfterUs,
    ) {
    }

    /** Returns this outcome for a caller that may go on, or may not, whatever the rules decided. */
    public function with(bool $allowed): self
    {
        return new self(...['allowed' => $allowed] + get_object_vars($this));
    }

    /** Returns this outcome with the deciding rule at another place. */
    public function at(int $place): self
    {
        return new self(...['place' => $place] + get_object_vars($this));
    }

    /** Returns this refusal with a time after which the request can pass. */
    public function retriedAfter(int $us): self
    {
        return new self(false, $this->place, 0, 0, $us, $this->remaining, $this->resetAfterUs);
    }
}
