<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\LimitExceeded;
use Sluicegate\Kernel\Outcome;

/**
 * The answer to a request about a budget. A refusal is an answer, too. Times are in µs, at most 2^53 - 1.
 */
final readonly class Decision
{
    /** True if the caller may go on. */
    public bool $allowed;
    /** Permits granted, or given back by a refund; 0 if refused. */
    public int $granted;
    /** Time for which an allowed request must be held back in all; `heldUs` of it is over. See `waitLeftUs()`. */
    public int $waitUs;
    /** Permits left under the deciding rule. */
    public int $remaining;
    /** Time until the same request can pass; 0 if allowed; null: never. */
    public ?int $retryAfterUs;
    /** Time until the budget of the deciding rule is full. */
    public int $resetAfterUs;

    /**
     * @internal decisions of tests come from `Testing\Script`
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

    /** Returns the time for which an allowed request must still be held back, as under `leaky_bucket` or by `reserve`. */
    public function waitLeftUs(): int
    {
        return max($this->waitUs - $this->heldUs, 0);
    }

    /** Holds this process back for `waitLeftUs()`. */
    public function pause(): void
    {
        // Even no time at all would take the system 0.1 ms.
        if ($this->waitLeftUs() > 0) {
            usleep($this->waitLeftUs());
        }
    }

    /** Returns the whole seconds until the same request can pass, rounded up; 0 if allowed; null: never, so do not retry. */
    public function retryAfterSeconds(): ?int
    {
        if ($this->allowed) {
            return 0;
        }
        return $this->retryAfterUs === null ? null : intdiv($this->retryAfterUs + 999_999, 1_000_000);
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

    /**
     * Returns whether Redis did not decide in time. It may have granted a permit all the same.
     *
     * @internal
     */
    public function isWithoutRedis(): bool
    {
        return in_array($this->mode, [Mode::Local, Mode::Deny, Mode::Shed], true);
    }

    /**
     * Returns this decision with the overflow that the policy applied, and whether the caller may go on.
     *
     * @internal
     */
    public function over(Overflow $overflow, bool $allowed): self
    {
        return $this->copy($this->outcome->with($allowed), $overflow, $this->heldUs);
    }

    /**
     * Returns this decision with the time for which a queue held the request back.
     *
     * @internal
     */
    public function held(int $heldUs): self
    {
        return $this->copy($this->outcome, $this->overflow, $heldUs);
    }

    /**
     * Returns this decision about a request that still waits as its refusal.
     *
     * @internal
     * @param int $retryMinUs the shortest time after which it says that the request can pass
     */
    public function givenUp(int $retryMinUs): self
    {
        return $this->copy($this->outcome->retriedAfter(max($this->waitUs, $retryMinUs)), null, $this->heldUs);
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
