<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use RuntimeException;

/**
 * The reason why a record, or the rules in one, cannot be read.
 *
 * @internal
 */
final class Unreadable extends RuntimeException
{
    /** @param bool $isLater whether a part is of a later version; the version that is held is then not used any more */
    private function __construct(string $reason, public readonly bool $isLater)
    {
        parent::__construct($reason);
    }

    public static function later(string $reason): self
    {
        return new self($reason, true);
    }

    public static function damaged(string $reason): self
    {
        return new self($reason, false);
    }

    /** Returns this reason, with the path of a member of a record before it. */
    public function at(string $path): self
    {
        return new self("$path: {$this->getMessage()}", $this->isLater);
    }
}
