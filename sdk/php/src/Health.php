<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The result of a check of a gate: its status, and where something is wrong.
 */
final readonly class Health
{
    /**
     * @internal
     * @param string $address that of Redis or of the server, without credentials; empty for a gate in memory
     * @param string $cause what is wrong; empty if nothing is. It may name policies: show it to operators only
     */
    public function __construct(public HealthStatus $status, public string $address, public string $cause = '')
    {
    }

    /** Returns whether all is well. */
    public function isUp(): bool
    {
        return $this->status === HealthStatus::Up;
    }
}
