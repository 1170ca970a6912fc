<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

/**
 * One check of several.
 */
final readonly class Check
{
    /**
     * @param string|null $key 1 to 1,024 bytes of UTF-8; null: the budget that all share
     * @param int $cost 1 to 2^31 permits
     */
    public function __construct(public string $policy, public ?string $key, public int $cost = 1)
    {
    }
}
