<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\LimitExceeded;

/**
 * The answer to a question about a budget. A refusal is an answer, too. Times are in µs, at most 2^53 - 1.
 */
final readonly class Decision
{
    /**
     * @param bool $allowed whether the caller may go on
     * @param int $granted permits granted, or given back by a refund; 0 if refused
     * @param int $waitUs how long the caller must hold back what passes
     * @param int $limit the largest cost that the deciding rule ever lets pass at once
     * @param int $remaining permits left under that rule
     * @param int|null $retryAfterUs 0 if allowed; when the same request can pass; null: never
     * @param int $resetAfterUs until that rule's budget is full
     * @param string $policy the policy, or the name of a limit that is made in code
     * @param string $rule the rule that decided
     * @param Mode $mode who decided
     * @param Overflow|null $overflow what the policy makes of a request over the limit; null: nothing
     * @param int $heldUs how long the request was held back in a queue
     * @param string $quotas what header fields say of the policy's rules, such as `"tokens";q=1000;w=86400`; empty
     *   where that is not known
     */
    public function __construct(
        public bool $allowed,
        public int $granted,
        public int $waitUs,
        public int $limit,
        public int $remaining,
        public ?int $retryAfterUs,
        public int $resetAfterUs,
        public string $policy,
        public string $rule,
        public Mode $mode = Mode::Store,
        public ?Overflow $overflow = null,
        public int $heldUs = 0,
        public string $quotas = '',
    ) {
    }

    /** Whole seconds until the same request can pass, rounded up; null if it passes now, or never does. */
    public function retryAfterSeconds(): ?int
    {
        return $this->retryAfterUs ? intdiv($this->retryAfterUs + 999_999, 1_000_000) : null;
    }

    /** Whole seconds until the budget is full, rounded up. */
    public function resetAfterSeconds(): int
    {
        return intdiv($this->resetAfterUs + 999_999, 1_000_000);
    }

    /**
     * This decision if it allows.
     *
     * @throws LimitExceeded if it refuses
     */
    public function orThrow(): self
    {
        return $this->allowed ? $this : throw new LimitExceeded($this);
    }

    /** The same decision with what the policy makes of it. */
    public function over(Overflow $overflow, bool $allowed): self
    {
        return $this->copy($allowed, $overflow, $this->heldUs);
    }

    /** The same decision after the request was held back. */
    public function held(int $heldUs): self
    {
        return $this->copy($this->allowed, $this->overflow, $heldUs);
    }

    private function copy(bool $allowed, ?Overflow $overflow, int $heldUs): self
    {
        return new self(
            $allowed,
            $this->granted,
            $this->waitUs,
            $this->limit,
            $this->remaining,
            $this->retryAfterUs,
            $this->resetAfterUs,
            $this->policy,
            $this->rule,
            $this->mode,
            $overflow,
            $heldUs,
            $this->quotas,
        );
    }
}
