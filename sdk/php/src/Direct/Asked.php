<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;

/**
 * The permits that requests of this host ask Redis for at this moment: Redis may have granted them, or may do so still,
 * so the share leaves room for them.
 *
 * @internal
 */
final class Asked
{
    /** The time after which a request counts no more whose process ended, in s; a deadline is ten at most. */
    private const LASTS_S = 10;

    public function __construct(private readonly Memory $memory)
    {
    }

    /** Counts permits; returns what `answered` takes. */
    public function ask(string $stateKey, int $permits): string
    {
        $slot = self::slot($stateKey, 0);
        $this->memory->increment($slot, $permits, 3 * self::LASTS_S);
        return $slot;
    }

    /** Counts them no more: after what Redis reported was recorded, and before the share decides. */
    public function answered(string $slot, int $permits): void
    {
        $this->memory->increment($slot, -$permits, 3 * self::LASTS_S);
    }

    /** Returns how many permits of a key Redis is asked for. */
    public function of(string $stateKey): int
    {
        return (int) $this->memory->get(self::slot($stateKey, 0)) + (int) $this->memory->get(self::slot($stateKey, 1));
    }

    private static function slot(string $stateKey, int $before): string
    {
        return 'asked:' . (intdiv(hrtime(true), self::LASTS_S * 1_000_000_000) - $before) . ":$stateKey";
    }
}
