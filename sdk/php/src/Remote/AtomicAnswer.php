<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decision;

/**
 * The answer to checks that pass together or not at all.
 */
final readonly class AtomicAnswer
{
    /**
     * @param bool $allowed whether all passed; if not, nothing was charged
     * @param int|null $refused the place of the check that refused, from 0; null if all passed
     * @param list<Decision> $decisions those of all checks in their order, or of the one that refused
     */
    public function __construct(public bool $allowed, public ?int $refused, public array $decisions)
    {
    }
}
