<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;
use Sluicegate\Redis\Answer;
use Sluicegate\Rules\RuleSet;

/**
 * The permits in use that Redis last reported of each key: the local share of a limit begins with them.
 *
 * @internal
 */
final class UsageCache
{
    /** The time after the last higher report from which an answer with less than is known is accepted, in µs. */
    private const STALE_WITHIN_US = 2_000_000;

    /** The shortest time that a report is kept, in s: a day, or the time in which the budget fills, if that is longer. */
    private const KEPT_S = 86_400;

    public function __construct(private readonly Memory $memory)
    {
    }

    /**
     * Records the permits in use that Redis reported of each rule.
     *
     * One process at a time: another one that reads before and writes afterwards would take a report back. After a long
     * wait it records nevertheless.
     */
    public function record(Budget $budget, Answer $answer, int $now): void
    {
        $slot = $this->slot($budget->stateKey);
        $isLocked = Lock::take($this->memory, "lock:$slot", Lock::PATIENCE_US);
        try {
            $this->recordIn($slot, $budget, $answer, $now);
        } finally {
            if ($isLocked) {
                $this->memory->delete("lock:$slot");
            }
        }
    }

    private function recordIn(string $slot, Budget $budget, Answer $answer, int $now): void
    {
        $set = $budget->rules->set;
        $kernel = $set->kernel();
        [$states, $raised] = $this->read($slot, $budget, $now) ?? [$kernel->fresh(), []];
        $known = $kernel->used($states, $now);
        $used = [];
        foreach ($answer->inUse as $place => $reported) {
            $rule = $set->rules[$place];
            if (!$rule->isReported()) {
                continue;
            }
            if ($reported >= $known[$place]) {
                $raised[$place] = $now;
            } elseif (isset($raised[$place]) && abs($now - $raised[$place]) < self::STALE_WITHIN_US) {
                // The answer may be older than the one that reported more.
                if ($rule->code === 1 || $rule->code === 4) {
                    continue;
                }
                $reported = $known[$place];
            }
            $used[$place] = $reported;
        }
        if ($used === []) {
            return;
        }
        $states = $kernel->withUsed($states, $used, $now);
        $lifeS = max(intdiv($set->lifeMs, 1000) + 1, self::KEPT_S);
        $this->memory->set($slot, [$budget->stateKey, $set->bytes, $states, $raised], $lifeS);
    }

    /** Returns the known states of a key; those of a new key if none are known. */
    public function states(Budget $budget, int $now): array
    {
        return $this->read($this->slot($budget->stateKey), $budget, $now)[0] ?? $budget->rules->set->kernel()->fresh();
    }

    /**
     * @return array{list<array<mixed>|null>, array<int, int>}|null the states, and the instants at which Redis last
     *   reported of each rule as much in use as was known, or more
     */
    private function read(string $slot, Budget $budget, int $now): ?array
    {
        $kept = $this->memory->get($slot);
        if ($kept === null || $kept[0] !== $budget->stateKey) {
            return null;
        }
        [, $bytes, $states, $raised] = $kept;
        $set = $budget->rules->set;
        return $bytes === $set->bytes
            ? [$states, $raised]
            : [$set->kernel()->takeOver(RuleSet::read($bytes)->kernel(), $states, $now), $raised];
    }

    private function slot(string $stateKey): string
    {
        return 'known:' . crc32($stateKey) % $this->memory->slots();
    }
}
