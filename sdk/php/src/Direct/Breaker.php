<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Psr\Log\LoggerInterface;
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

    /** The shortest time between two logs that it opens, or closes, in s: an unstable Redis must not fill logs. */
    private const SAID_EVERY_S = 60;

    public function __construct(private readonly Memory $memory, private readonly ?LoggerInterface $logger = null)
    {
    }

    /** Returns whether Redis may be asked at `$now`. If it is open, one decision in 100 to 300 ms is the probe. */
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
            if ($this->logger !== null && $this->memory->add('said:closed', 1, self::SAID_EVERY_S)) {
                $this->logger->notice('sluicegate: Redis decides again');
            }
            for ($past = 0; $past < self::SLOTS; $past++) {
                $this->memory->delete('all:' . ($slot - $past));
                $this->memory->delete('failed:' . ($slot - $past));
            }
        }
        $this->memory->increment("all:$slot", 1, 2);
    }

    /** Counts a decision without an answer, and opens the breaker after too many. */
    public function failed(int $now): void
    {
        $slot = intdiv($now, self::SLOT_US);
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
            if ($this->logger !== null && $this->memory->add('said:opened', 1, self::SAID_EVERY_S)) {
                $this->logger->warning('sluicegate: Redis does not answer; on_store_failure of policies decides');
            }
        }
    }

    private function open(int $now): void
    {
        $this->memory->set('breaker', [$now, random_int(self::PROBE_MIN_US, self::PROBE_MAX_US)], 0);
    }
}
