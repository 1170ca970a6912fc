<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decision;

/**
 * The result of a settlement, in permits.
 */
final readonly class Settlement
{
    /**
     * @param int $refunded given back; fewer than the difference if the budget was full before
     * @param int $taken taken in addition
     * @param int $missing permits that were not left to be taken; they are not owed
     * @param Decision $decision that of the correction; the state of the budget if nothing had to be corrected
     */
    public function __construct(
        public int $refunded,
        public int $taken,
        public int $missing,
        public Decision $decision,
    ) {
    }
}
