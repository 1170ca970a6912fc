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

    /** How long a note is kept, in s: a day. A budget that takes longer to fill is seldom asked for less often. */
    private const KEPT_S = 86_400;

    /** @var array<string, true> */
    private array $kept = [];

    public function __construct(private readonly Memory $memory)
    {
    }

    /** Notes what a decision of Redis says of the rule that decided. */
    public function note(Budget $budget, Answer $answer, int $now): void
    {
        $set = $budget->rules->set;
        $place = $answer->place;
        if ($place === null || $set->rules[$place]->flags & Rule::HOLDS_PERMITS) {
            return;
        }
        $slot = $this->slot($budget->stateKey);
        $kernel = $set->kernel();
        $windows = $set->windowsAround($now);
        [$states, $noted] = $this->read($slot, $budget, $now, $windows) ?? [$kernel->fresh(), PHP_INT_MIN];
        $said = max($answer->limit - $answer->outcome->remaining, 0);
        $known = $kernel->used($states, $now, $windows)[$place];
        if ($said >= $known) {
            $noted = $now;
        } elseif ($now - $noted < self::BELIEVED_AFTER_US && $now >= $noted) {
            // The answer may be an older one than that which said more.
            $code = $set->rules[$place]->code;
            if ($code === 1 || $code === 4) {
                return;
            }
            $said = $known;
        }
        $states = $kernel->withUsed($states, $place, $said, $now, $windows);
        $id = $set->generation();
        if (!isset($this->kept[$id])) {
            // A process uses a few hundred sets; generated limits must not make this grow.
            $this->kept = count($this->kept) >= 1024 ? [] : $this->kept;
            $this->kept[$id] = true;
            $this->memory->set('set:' . bin2hex($id), serialize($set), self::KEPT_S);
        }
        $this->memory->set($slot, [$budget->stateKey, $id, $states, $noted], self::KEPT_S);
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
     * @return array{list<array<mixed>|null>, int}|null
     */
    private function read(string $slot, Budget $budget, int $now, array $windows): ?array
    {
        $kept = $this->memory->get($slot);
        if ($kept === null || $kept[0] !== $budget->stateKey) {
            return null;
        }
        [, $id, $states, $noted] = $kept;
        $set = $budget->rules->set;
        if ($id !== $set->generation()) {
            $text = $this->memory->get('set:' . bin2hex($id));
            $old = is_string($text) ? unserialize($text) : null;
            if (!$old instanceof RuleSet) {
                return null;
            }
            $oldWindows = $old->windowsAround($now);
            $states = $set->kernel()->takeOver($old->kernel(), $states, $now, $windows, $oldWindows);
        }
        return [$states, $noted];
    }

    private function slot(string $stateKey): string
    {
        return 'known:' . crc32($stateKey) % $this->memory->slots();
    }
}
