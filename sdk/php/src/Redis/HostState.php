<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Memory\Apcu;

/**
 * An address, or the slots of a cluster, that this host learned: kept by APCu for the host's processes, else by this
 * object.
 *
 * @internal
 */
final class HostState
{
    /** The time for which APCu keeps it, in s; after a failure it is looked up again at once. */
    private const KEPT_S = 60;

    private mixed $value = null;
    private readonly bool $hasApcu;

    public function __construct(private readonly string $about)
    {
        $this->hasApcu = Apcu::isAvailable();
    }

    /** Returns the value; null if there is none. */
    public function get(): mixed
    {
        if ($this->value === null && $this->hasApcu) {
            $value = apcu_fetch("sluicegate:$this->about", $found);
            $this->value = $found ? $value : null;
        }
        return $this->value;
    }

    public function set(mixed $value): void
    {
        $this->value = $value;
        if ($this->hasApcu) {
            apcu_store("sluicegate:$this->about", $value, self::KEPT_S);
        }
    }

    /** Deletes the value. */
    public function forget(): void
    {
        $this->value = null;
        if ($this->hasApcu) {
            apcu_delete("sluicegate:$this->about");
        }
    }
}
