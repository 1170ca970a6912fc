<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use RuntimeException;

/**
 * The reason why a record, or the rules in one, cannot be read.
 */
final class Unreadable extends RuntimeException
{
    /** @param bool $isLater whether a part is of a later version: what is held decides nothing any more either */
    private function __construct(string $why, public readonly bool $isLater)
    {
        parent::__construct($why);
    }

    public static function later(string $why): self
    {
        return new self($why, true);
    }

    public static function damaged(string $why): self
    {
        return new self($why, false);
    }

    /** The same reason, at a member of a record. */
    public function at(string $path): self
    {
        return new self("$path: {$this->getMessage()}", $this->isLater);
    }
}
