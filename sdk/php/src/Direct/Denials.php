<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Kernel\Outcome;
use Sluicegate\Memory\Memory;
use Sluicegate\Redis\Answer;

/**
 * Remembers checks that Redis refused: they are refused until their retry without a call of Redis.
 *
 * @internal
 */
final class Denials
{
    /** The time after which a request goes to Redis again nevertheless, in µs: permits may have been given back. */
    private const RECHECK_AFTER_US = 1_000_000;

    /** The time for which others get the old refusal while one request goes to Redis, in µs. */
    private const PROBE_US = 50_000;

    /** The longest time that a refusal is kept, in s; each second a request goes to Redis anyway. */
    private const KEPT_MAX_S = 86_400;

    public function __construct(private readonly Memory $memory)
    {
    }

    /** Returns the refusal that applies to this check at `$now`; null: Redis must decide. */
    public function find(Budget $budget, int $cost, int $now): ?Answer
    {
        $slot = $this->slot($budget->stateKey);
        $kept = $this->memory->get($slot);
        if ($kept === null || $kept[0] !== $budget->stateKey || $kept[1] !== $budget->rules->head) {
            return null;
        }
        [, , $keptCost, $at, $retry, $reset, $remaining, $place, $limit, $probedAt] = $kept;
        $elapsed = $now - $at;
        if ($keptCost !== $cost || $elapsed < 0 || ($retry !== null && $elapsed >= $retry)) {
            return null;
        }
        if ($elapsed >= self::RECHECK_AFTER_US && !($now >= $probedAt && $now < $probedAt + self::PROBE_US)) {
            $kept[9] = $now;
            $this->keep($slot, $kept, $retry);
            return null;
        }
        $left = $retry === null ? null : $retry - $elapsed;
        $outcome = new Outcome(false, $place, 0, 0, $left, $remaining, max($reset - $elapsed, 0));
        return new Answer($outcome, $limit, [], []);
    }

    /** Remembers a refused check; an allowed check with the same cost deletes the refusal. */
    public function record(Budget $budget, int $cost, int $now, Answer $answer): void
    {
        $slot = $this->slot($budget->stateKey);
        $outcome = $answer->outcome;
        if ($outcome->allowed) {
            $kept = $this->memory->get($slot);
            if ($kept !== null && $kept[0] === $budget->stateKey && $kept[2] === $cost) {
                $this->memory->delete($slot);
            }
            return;
        }
        $this->keep($slot, [
            $budget->stateKey, $budget->rules->head, $cost, $now, $outcome->retryAfterUs, $outcome->resetAfterUs,
            $outcome->remaining, $outcome->place, $answer->limit, 0,
        ], $outcome->retryAfterUs);
    }

    /** Forgets the refusal of a key to which permits were given back. */
    public function forget(Budget $budget): void
    {
        $slot = $this->slot($budget->stateKey);
        if (($this->memory->get($slot)[0] ?? null) === $budget->stateKey) {
            $this->memory->delete($slot);
        }
    }

    private function keep(string $slot, array $kept, ?int $retry): void
    {
        $seconds = $retry === null ? self::KEPT_MAX_S : intdiv($retry, 1_000_000) + 1;
        $this->memory->set($slot, $kept, min($seconds, self::KEPT_MAX_S));
    }

    private function slot(string $stateKey): string
    {
        return 'denial:' . crc32($stateKey) % $this->memory->slots();
    }
}
