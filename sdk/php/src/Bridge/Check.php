<?php

declare(strict_types=1);

namespace Sluicegate\Bridge;

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;

/**
 * The command `sluicegate:check` of both frameworks: whether requests get decisions, and policies can be used.
 *
 * @internal
 */
final class Check
{
    private function __construct()
    {
    }

    /**
     * Returns whether all is well, and the lines for operators.
     *
     * @param list<string> $policies the names of policies that must be there
     * @return array{bool, list<string>}
     */
    public static function of(Gate $gate, array $policies): array
    {
        $health = $gate->health(...$policies);
        $isWell = $health->isUp();
        $lines = [trim("{$health->status->value} $health->address $health->cause")];
        foreach ($policies as $policy) {
            try {
                $gate->require($policy);
            } catch (SluicegateException $e) {
                $isWell = false;
                // The first cause is that of the health.
                if (!str_contains($lines[0], $e->getMessage())) {
                    $lines[] = $e->getMessage();
                }
            }
        }
        return [$isWell, $lines];
    }
}
