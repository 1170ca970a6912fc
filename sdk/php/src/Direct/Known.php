<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;
use Sluicegate\Redis\Answer;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;

/**
 * What Redis last said to be in use of each key: where the local share of a limit begins.
 */
final class Known
{
    /** An answer that says less than is known is believed if the last that said more is this old. */
    private const BELIEVED_AFTER_US = 2_000_000;

    /** How long a note is kept at least, in s: a day. Where a budget takes longer to fill, it is as long as that. */
    private const KEPT_S = 86_400;

    /** How often a process looks whether the rules of notes are kept, in µs. */
    private const LOOK_EVERY_US = 3_600_000_000;

    /** @var array<string, int> when rules were last seen to be kept */
    private array $kept = [];

    public function __construct(private readonly Memory $memory)
    {
    }

    /** Notes what a decision of Redis says of each rule. */
    public function note(Budget $budget, Answer $answer, int $now): void
    {
        $set = $budget->rules->set;
        $slot = $this->slot($budget->stateKey);
        $kernel = $set->kernel();
        $windows = $set->windowsAround($now);
        [$states, $raised] = $this->read($slot, $budget, $now, $windows) ?? [$kernel->fresh(), []];
        $known = $kernel->used($states, $now, $windows);
        $used = [];
        foreach ($answer->inUse as $place => $said) {
            $rule = $set->rules[$place];
            if (!$rule->isReported()) {
                continue;
            }
            if ($said >= $known[$place]) {
                $raised[$place] = $now;
            } elseif (isset($raised[$place]) && abs($now - $raised[$place]) < self::BELIEVED_AFTER_US) {
                // The answer may be an older one than that which said more.
                if ($rule->code === 1 || $rule->code === 4) {
                    continue;
                }
                $said = $known[$place];
            }
            $used[$place] = $said;
        }
        if ($used === []) {
            return;
        }
        $states = $kernel->withUsed($states, $used, $now, $windows);
        $this->keep($set, $now);
        $this->memory->set($slot, [$budget->stateKey, $set->generation(), $states, $raised], self::lifeS($set));
    }

    /** Keeps the rules of a note, for as long as notes of them are kept: later rules take its usage over. */
    private function keep(RuleSet $set, int $now): void
    {
        $id = $set->generation();
        if (isset($this->kept[$id]) && abs($now - $this->kept[$id]) < self::LOOK_EVERY_US) {
            return;
        }
        // A process uses a few hundred sets; generated limits must not make this grow.
        $this->kept = count($this->kept) >= 1024 ? [] : $this->kept;
        $this->kept[$id] = $now;
        $slot = $this->slotOfRules($id);
        $there = $this->memory->get($slot);
        if ($there === null || $there[0] !== $id || abs($now - $there[2]) >= 1_000_000 * self::KEPT_S) {
            $this->memory->set($slot, [$id, serialize($set), $now], self::lifeS($set) + 2 * self::KEPT_S);
        }
    }

    private static function lifeS(RuleSet $set): int
    {
        return max(intdiv($set->lifeMs, 1000) + 1, self::KEPT_S);
    }

    /**
     * The states of a key as far as they are known.
     *
     * @param list<array{int, int}|null> $windows
     * @return list<array<mixed>|null>
     */
    public function states(Budget $budget, int $now, array $windows): array
    {
        return $this->read($this->slot($budget->stateKey), $budget, $now, $windows)[0]
            ?? $budget->rules->set->kernel()->fresh();
    }

    /**
     * @param list<array{int, int}|null> $windows
     * @return array{list<array<mixed>|null>, array<int, int>}|null the states, and when each rule was last said to
     *   have as much in use as was known, or more
     */
    private function read(string $slot, Budget $budget, int $now, array $windows): ?array
    {
        $kept = $this->memory->get($slot);
        if ($kept === null || $kept[0] !== $budget->stateKey) {
            return null;
        }
        [, $id, $states, $raised] = $kept;
        $set = $budget->rules->set;
        if ($id !== $set->generation()) {
            [$there, $text] = $this->memory->get($this->slotOfRules($id)) ?? [null, null];
            $old = $there === $id ? unserialize($text) : null;
            if (!$old instanceof RuleSet) {
                return null;
            }
            $oldWindows = $old->windowsAround($now);
            $states = $set->kernel()->takeOver($old->kernel(), $states, $now, $windows, $oldWindows);
        }
        return [$states, $raised];
    }

    private function slot(string $stateKey): string
    {
        return 'known:' . crc32($stateKey) % $this->memory->slots();
    }

    private function slotOfRules(string $generation): string
    {
        return 'set:' . crc32($generation) % $this->memory->slots();
    }
}
