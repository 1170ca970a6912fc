<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Observation;

/**
 * An observer that keeps what it sees.
 */
final class Metrics
{
    /** @var list<string> */
    public array $seen = [];

    public function __invoke(Observation $of): void
    {
        $this->seen[] = trim("$of->policy {$of->result()} {$of->mode()} {$of->errorName()}");
    }
}
