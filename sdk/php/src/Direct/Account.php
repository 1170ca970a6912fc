<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Kernel\Primitive;
use Sluicegate\Rules\Rule;

/**
 * The permits that this host admitted under a key while Redis did not answer, and those that Redis has counted.
 *
 * @internal
 */
final class Account
{
    /**
     * The id of its bills, until permits are charged: Redis does not remember an id for which it charged nothing, and a
     * request with the id that is still under way may charge it later.
     */
    public ?string $billId = null;

    /** The most permits of a rule that one debt charges. */
    private const DEBT_MAX = 2147483648;

    /**
     * @param int $nodes the number by which each permit is multiplied
     * @param list<array<mixed>|null> $stored the states with the permits that Redis has counted
     * @param list<array<mixed>|null> $used the same, with the permits that were admitted here
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

    /**
     * Converts it to the rules that apply now.
     *
     * A bill has one number for each rule, by its place and in permits of then. If these do not fit the other rules,
     * the next bill has a new id, and permits that were perhaps charged are charged again.
     */
    public function takeOver(Budget $budget, int $now): void
    {
        $old = $this->budget->rules->set;
        $set = $budget->rules->set;
        if ($old->bytes === $set->bytes) {
            return;
        }
        $this->stored = $set->kernel()->takeOver($old->kernel(), $this->stored, $now);
        $this->used = $set->kernel()->takeOver($old->kernel(), $this->used, $now);
        $this->budget = $budget;
        if (!$set->countsLike($old)) {
            [$this->bill, $this->billId] = [null, null];
        } elseif ($this->bill !== null) {
            $this->bill[2] = $set->kernel()->takeOver($old->kernel(), $this->bill[2], $now);
        }
    }

    /**
     * Returns the permits that this host owes Redis, for each rule.
     *
     * @return list<int>
     */
    public function owed(int $now): array
    {
        $kernel = $this->budget->rules->set->kernel();
        $owed = fn (int $used, int $stored): int =>
            min(Primitive::divCeil(max($used - $stored, 0), $this->nodes), self::DEBT_MAX);
        return array_map($owed, $kernel->used($this->used, $now), $kernel->used($this->stored, $now));
    }

    /** Returns whether permits are owed, or a bill has no answer yet. */
    public function owes(int $now): bool
    {
        return $this->bill !== null || max($this->owed($now)) > 0;
    }

    /**
     * Returns the bill to send now; one without an answer is sent again unchanged. Null: nothing is owed.
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
     * Records that Redis charged the bill.
     *
     * @param string $id the id of the bill
     * @param list<int> $charged the permits that were charged, of each rule
     */
    public function paid(string $id, array $charged, int $now): void
    {
        if ($this->bill === null || $this->bill[0] !== $id) {
            return;
        }
        [, $permits, $used] = $this->bill;
        // Permits that were not left to be charged are still owed.
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
     * Adds the permits that others took: if an answer reports more in use of a rule than Redis was known to have
     * counted, both states get the difference. They get it as far as there is room here; and all of it if the report is
     * above the limit, which was lowered then and may rise without Redis.
     *
     * @param array<int, int> $reported permits in use by the places of rules
     */
    public function raise(array $reported, int $now): void
    {
        $set = $this->budget->rules->set;
        $kernel = $set->kernel();
        $known = $kernel->used($this->stored, $now);
        $more = [];
        foreach ($reported as $place => $used) {
            if ($set->rules[$place]->isReported() && $used > $known[$place]) {
                $isAbove = $used > $set->rules[$place]->limit;
                $room = $isAbove ? PHP_INT_MAX : $kernel->available($this->used, $place, $now);
                $more[$place] = min($used - $known[$place], $room);
            }
        }
        if ($more === []) {
            return;
        }
        $this->used = $kernel->charged($this->used, $more, $now);
        $this->stored = $kernel->charged($this->stored, $more, $now);
        if ($this->bill !== null) {
            $this->bill[2] = $kernel->charged($this->bill[2], $more, $now);
        }
    }

    /** Returns whether it can be dropped: nothing is owed, no permit is held, and no budget is filling. */
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
