<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * What a set of rules decided, by the place of the deciding rule.
 */
final readonly class Outcome
{
    /**
     * @param bool $allowed whether it passes
     * @param int $place the deciding rule, from 0
     * @param int $granted permits granted or given back; 0 if refused
     * @param int $waitUs how long an allowed request is to be held back
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

    /** The same outcome for a caller that may go on, or may not, whatever the rules decided. */
    public function with(bool $allowed): self
    {
        return new self(...['allowed' => $allowed] + get_object_vars($this));
    }

    /** The same outcome under another rule. */
    public function at(int $place): self
    {
        return new self(...['place' => $place] + get_object_vars($this));
    }

    /** The same refusal with a time after which the request can pass. */
    public function retriedAfter(int $us): self
    {
        return new self(false, $this->place, 0, 0, $us, $this->remaining, $this->resetAfterUs);
    }
}
