<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The address of Redis that this host learned: kept by APCu for the host's processes, and without APCu by this object.
 */
final class HostNote
{
    /** How long it is believed, in s; what fails is asked for again at once. */
    private const BELIEVED_S = 60;

    private mixed $value = null;
    private readonly bool $hasApcu;

    public function __construct(private readonly string $about)
    {
        $this->hasApcu = function_exists('apcu_enabled') && apcu_enabled();
    }

    /** What was noted; null: nothing. */
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
            apcu_store("sluicegate:$this->about", $value, self::BELIEVED_S);
        }
    }

    /** Does not believe it any more. */
    public function forget(): void
    {
        $this->value = null;
        if ($this->hasApcu) {
            apcu_delete("sluicegate:$this->about");
        }
    }
}
