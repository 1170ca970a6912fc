<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Log;
use Sluicegate\Memory\Memory;

/**
 * Stops calls to a Redis that does not answer, so that callers need not wait. A host has one for all policies and keys.
 *
 * @internal
 */
final class Breaker
{
    private const SLOT_US = 100_000;
    private const SLOTS = 10;
    private const DECISIONS_MIN = 5;
    private const PROBE_MIN_US = 100_000;
    private const PROBE_MAX_US = 300_000;

    /**
     * @param string $address that of Redis, for the log
     * @param string $meanwhile what decides while Redis does not answer, for the log
     */
    public function __construct(
        private readonly Memory $memory,
        private readonly ?Log $log = null,
        private readonly string $address = '',
        private readonly string $meanwhile = '',
    ) {
    }

    /** Returns whether a request may go to Redis at `$now`. If it is open, one decision in 100 to 300 ms is the probe. */
    public function allows(int $now): bool
    {
        $open = $this->memory->get('breaker');
        if ($open === null) {
            return true;
        }
        [$since, $span] = $open;
        if ($now >= $since && $now < $since + $span) {
            return false;
        }
        // The one that adds is the probe.
        if (!$this->memory->add("probe:$since", 1, 1)) {
            return false;
        }
        $this->open($now);
        return true;
    }

    /** Counts a decision of Redis, and closes the breaker. */
    public function succeeded(int $now): void
    {
        $slot = intdiv($now, self::SLOT_US);
        if ($this->memory->get('breaker') !== null) {
            $this->memory->delete('breaker');
            for ($past = 0; $past < self::SLOTS; $past++) {
                $this->memory->delete('all:' . ($slot - $past));
                $this->memory->delete('failed:' . ($slot - $past));
            }
        }
        $isOver = $this->memory->get('failing') !== null;
        if ($isOver) {
            $this->memory->delete('failing');
        }
        if ($isOver || $this->log?->outlivesMemory) {
            $this->log?->recovered('redis', "Redis at $this->address decides again");
        }
        $this->memory->increment("all:$slot", 1, 2);
    }

    /**
     * Counts a decision without an answer, and opens the breaker after too many.
     *
     * @param string $cause what happened
     * @param string $word the error of Redis in one word; empty if it did not answer
     */
    public function failed(int $now, string $cause = '', string $word = ''): void
    {
        $slot = intdiv($now, self::SLOT_US);
        // The log first: a process that finds `failing` ends what is logged.
        $this->log?->warn('redis', $this->text($cause, $word), $word, true);
        $this->memory->set('failing', [$cause, $word], 0);
        $this->memory->increment("all:$slot", 1, 2);
        $this->memory->increment("failed:$slot", 1, 2);
        if ($this->memory->get('breaker') !== null) {
            return;
        }
        [$all, $failed] = [0, 0];
        for ($past = 0; $past < self::SLOTS; $past++) {
            $all += (int) $this->memory->get('all:' . ($slot - $past));
            $failed += (int) $this->memory->get('failed:' . ($slot - $past));
        }
        if ($all >= self::DECISIONS_MIN && 2 * $failed >= $all) {
            $this->open($now);
        }
    }

    /**
     * Returns why the last decision had no answer; null if it had one.
     *
     * @return array{string, string}|null the cause, and the error of Redis in one word; empty if it did not answer
     */
    public function failing(): ?array
    {
        return $this->memory->get('failing');
    }

    private function text(string $cause, string $word): string
    {
        $what = $word === '' ? 'does not answer' : 'does not decide';
        return "Redis at $this->address $what: " . SluicegateException::truncate($cause) . "; $this->meanwhile";
    }

    private function open(int $now): void
    {
        $this->memory->set('breaker', [$now, random_int(self::PROBE_MIN_US, self::PROBE_MAX_US)], 0);
    }
}
