<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Sluicegate\Clock;
use Sluicegate\Gate;
use Sluicegate\Policy\Document;

/**
 * A gate for tests: the same decisions, in this process, without Redis.
 */
final class InMemoryGate
{
    /**
     * A gate with policies.
     *
     * @param Clock $clock usually a ManualClock
     * @param array<string, mixed>|string ...$policies documents, as JSON or as what it decodes to
     */
    public static function with(Clock $clock, array|string ...$policies): Gate
    {
        $documents = [];
        foreach ($policies as $policy) {
            $flags = JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
            $document = Document::parse(is_string($policy) ? $policy : json_encode($policy, $flags));
            $documents[$document->name] = $document;
        }
        return new Gate(new InMemoryDecider($documents, $clock));
    }
}
