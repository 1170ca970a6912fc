<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\LimitExceeded;
use Sluicegate\Kernel\Outcome;

/**
 * The answer to a question about a budget. A refusal is an answer, too. Times are in µs, at most 2^53 - 1.
 */
final readonly class Decision
{
    /** True if the caller may go on. */
    public bool $allowed;
    /** Permits granted, or given back by a refund; 0 if refused. */
    public int $granted;
    /** Time for which the caller must hold an allowed request back. */
    public int $waitUs;
    /** Permits left under the deciding rule. */
    public int $remaining;
    /** Time until the same request can pass; 0 if allowed; null: never. */
    public ?int $retryAfterUs;
    /** Time until the budget of the deciding rule is full. */
    public int $resetAfterUs;

    /**
     * @param int $limit the largest cost that the deciding rule ever lets pass at once
     * @param string $policy the policy, or the name of a limit that is made in code
     * @param string $rule the rule that decided
     * @param Mode $mode how the request was decided
     * @param Overflow|null $overflow the overflow that the policy applied to the request; null: none
     * @param int $heldUs time for which a queue held the request back
     * @param string $quotas the value of `RateLimit-Policy`, such as `"tokens";q=1000;w=86400`; empty if it is unknown
     */
    public function __construct(
        private Outcome $outcome,
        public int $limit,
        public string $policy,
        public string $rule,
        public Mode $mode = Mode::Store,
        public ?Overflow $overflow = null,
        public int $heldUs = 0,
        public string $quotas = '',
    ) {
        $this->allowed = $outcome->allowed;
        $this->granted = $outcome->granted;
        $this->waitUs = $outcome->waitUs;
        $this->remaining = $outcome->remaining;
        $this->retryAfterUs = $outcome->retryAfterUs;
        $this->resetAfterUs = $outcome->resetAfterUs;
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
     * Returns this decision if it allows.
     *
     * @throws LimitExceeded if it refuses
     */
    public function orThrow(): self
    {
        return $this->allowed ? $this : throw new LimitExceeded($this);
    }

    /** Returns this decision with the overflow that the policy applied, and whether the caller may go on. */
    public function over(Overflow $overflow, bool $allowed): self
    {
        return $this->copy($this->outcome->with($allowed), $overflow, $this->heldUs);
    }

    /** Returns this decision with the time for which a queue held the request back. */
    public function held(int $heldUs): self
    {
        return $this->copy($this->outcome, $this->overflow, $heldUs);
    }

    private function copy(Outcome $outcome, ?Overflow $overflow, int $heldUs): self
    {
        return new self(
            $outcome,
            $this->limit,
            $this->policy,
            $this->rule,
            $this->mode,
            $overflow,
            $heldUs,
            $this->quotas,
        );
    }
}
