<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Kernel\Num;
use Sluicegate\Rules\Rule;

/**
 * What this host admitted under a key while Redis did not answer, and what Redis knows of it.
 */
final class Account
{
    /**
     * The id of its bills, until something is charged: Redis does not remember an id of which it charged nothing, and a
     * question that carries it and is still under way may charge it later.
     */
    public ?string $billId = null;

    /** The most permits of a rule that one debt charges. */
    private const DEBT_MAX = 2147483648;

    /**
     * @param int $nodes by how many each permit counts
     * @param list<array<mixed>|null> $stored what Redis knows to be in use
     * @param list<array<mixed>|null> $used the same, with what was admitted here
     * @param array{string, list<int>, list<array<mixed>|null>}|null $bill the id of a debt that was sent, its permits,
     *   and `used` when it was made
     */
    public function __construct(
        public Budget $budget,
        public readonly int $nodes,
        public array $stored,
        public array $used,
        public int $latest,
        public ?array $bill = null,
        public bool $isQueued = false,
    ) {
    }

    /** Puts it under the rules that hold now. */
    public function takeOver(Budget $budget, int $now): void
    {
        $old = $this->budget->rules->set;
        $set = $budget->rules->set;
        if ($old->bytes !== $set->bytes) {
            $this->stored = $set->kernel()->takeOver($old->kernel(), $this->stored, $now);
            $this->used = $set->kernel()->takeOver($old->kernel(), $this->used, $now);
            [$this->budget, $this->bill, $this->billId] = [$budget, null, null];
        }
    }

    /**
     * The permits that Redis is owed, of each rule.
     *
     * @return list<int>
     */
    public function owed(int $now): array
    {
        $kernel = $this->budget->rules->set->kernel();
        $owed = fn (int $used, int $stored): int =>
            min(Num::divCeil(max($used - $stored, 0), $this->nodes), self::DEBT_MAX);
        return array_map($owed, $kernel->used($this->used, $now), $kernel->used($this->stored, $now));
    }

    /** Whether Redis is owed anything, or was perhaps paid without saying so. */
    public function owes(int $now): bool
    {
        return $this->bill !== null || max($this->owed($now)) > 0;
    }

    /**
     * The bill that is to be sent now; one that was perhaps charged is sent again as it was. Null: nothing is owed.
     *
     * @return array{string, list<int>, list<array<mixed>|null>}|null
     */
    public function bill(int $now): ?array
    {
        $owed = $this->bill === null ? $this->owed($now) : [0];
        if (max($owed) > 0) {
            $this->billId ??= random_bytes(16);
            $this->bill = [$this->billId, $owed, $this->used];
        }
        return $this->bill;
    }

    /**
     * Redis charged the bill.
     *
     * @param string $id of the bill
     * @param list<int> $charged of each rule
     */
    public function paid(string $id, array $charged, int $now): void
    {
        if ($this->bill === null || $this->bill[0] !== $id) {
            return;
        }
        [, $permits, $used] = $this->bill;
        // What was not there to be charged is still owed.
        foreach ($permits as $place => $sent) {
            $permits[$place] = max($sent - ($charged[$place] ?? 0), 0) * $this->nodes;
        }
        $this->stored = $this->budget->rules->set->kernel()->givenBack($used, $permits, $now);
        $this->bill = null;
        if (max([0, ...$charged]) > 0) {
            $this->billId = null;
        }
    }

    /**
     * An answer that says more to be in use of a rule than Redis was known to have adds the difference to both states:
     * others took it, beside what is owed.
     *
     * @param array<int, int> $said permits in use by the places of rules
     */
    public function raise(array $said, int $now): void
    {
        $set = $this->budget->rules->set;
        $kernel = $set->kernel();
        $known = $kernel->used($this->stored, $now);
        $more = [];
        foreach ($said as $place => $used) {
            if ($set->rules[$place]->isReported() && $used > $known[$place]) {
                $more[$place] = $used - $known[$place];
            }
        }
        if ($more === []) {
            return;
        }
        [$this->used, $more] = $kernel->charged($this->used, $more, $now);
        [$this->stored] = $kernel->charged($this->stored, $more, $now);
        if ($this->bill !== null) {
            [$this->bill[2]] = $kernel->charged($this->bill[2], $more, $now);
        }
    }

    /** Whether it is needed no more: nothing is owed, no permit is held, and no budget fills. */
    public function isOver(int $now): bool
    {
        if ($this->owes($now)) {
            return false;
        }
        $set = $this->budget->rules->set;
        foreach ($set->rules as $place => $rule) {
            $fills = $rule->code === 1 && !($rule->flags & Rule::FULL_IS_FRESH);
            if (($fills || $rule->flags & Rule::HOLDS_PERMITS) && $this->used[$place] !== null) {
                return $set->kernel()->isFull($this->used, $now);
            }
        }
        return true;
    }
}
