<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Decision;

/**
 * What a settlement corrected, in permits.
 */
final readonly class Settlement
{
    /**
     * @param int $refunded given back; fewer than the difference if the budget was full before
     * @param int $taken taken in addition
     * @param int $missing what was not there to be taken; nobody owes it
     * @param Decision $decision that of the correction, or what is left where nothing was to be corrected
     */
    public function __construct(
        public int $refunded,
        public int $taken,
        public int $missing,
        public Decision $decision,
    ) {
    }
}
